use super::*;
use crate::scale::Ruler;

fn ticks(axis: &Axis, values: &[f64]) -> Vec<String> {
    let ruler = Ruler::new(axis, values.iter().copied(), 0.06);
    ruler.ticks().map(|(_, name)| name).collect()
}

#[test]
fn even_axes_have_round_numbers_with_the_digits_that_tell_them_apart() {
    let zero = Axis::from_zero("x");
    assert_eq!(
        ticks(&zero, &[1200.0]),
        ["0", "200", "400", "600", "800", "1000", "1200"]
    );
    assert_eq!(
        ticks(&zero, &[1.0]),
        ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    );
    assert_eq!(ticks(&zero, &[0.02])[1], "0.005");
    let fitted = Axis::of("x", Scale::Fitted);
    assert_eq!(
        ticks(&fitted, &[56.0, 60.0]),
        ["56", "57", "58", "59", "60"]
    );
    let least = Axis::of("x", Scale::FromZero(10.0));
    assert_eq!(ticks(&least, &[1.0]), ["0", "2", "4", "6", "8", "10"]);
}

#[test]
fn axes_of_powers_have_each_power_and_what_fits_between() {
    let doublings = Axis::of("x", Scale::Doublings);
    assert_eq!(ticks(&doublings, &[1.0, 16.0]), ["1", "2", "4", "8", "16"]);
    let decades = Axis::of("x", Scale::Decades);
    assert_eq!(
        ticks(&decades, &[30e3, 300e3]),
        ["20 K", "50 K", "100 K", "200 K", "500 K"]
    );
    assert_eq!(
        ticks(&decades, &[1.0, 1e6]),
        ["1", "10", "100", "1 K", "10 K", "100 K", "1 M"]
    );
    let ruler = Ruler::new(&doublings, [1.0, 16.0].into_iter(), 0.0);
    let part = |value| ruler.part(value).unwrap();
    assert!((part(4.0) - part(2.0) - (part(2.0) - part(1.0))).abs() < 1e-9);
    assert_eq!(ruler.part(0.0), None, "no power is zero");
    assert_eq!(ruler.part(f64::NAN), None);
}

#[test]
fn an_axis_may_write_its_numbers_its_own_way_or_have_names() {
    let own = Axis::from_zero("x").written(|value| format!("<{value}>"));
    assert_eq!(ticks(&own, &[2.0])[0], "<0>");
    let places = Axis::places("x", vec!["a".into(), "b".into()]);
    assert_eq!(ticks(&places, &[]), ["a", "b"]);
}

fn picture(series: Vec<Series>) -> String {
    svg(&Picture {
        title: "all & sundry".into(),
        columns: 1,
        panel: (600, 400),
        panels: vec![Panel {
            title: "one".into(),
            across: Axis::from_zero("seconds"),
            up: Axis::from_zero("MiB/s"),
            series,
        }],
        notes: vec!["what must be known".into()],
    })
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn a_picture_has_its_words_and_is_the_same_again() {
    let line = || Series::new("<line>", Mark::Line, [(0.0, 1.0), (1.0, 2.0)]);
    let text = picture(vec![line()]);
    for words in [
        "all &amp; sundry",
        "&lt;line&gt;",
        "seconds",
        "MiB/s",
        "one",
        "what must be known",
    ] {
        assert_eq!(count(&text, &format!(">{words}</text>")), 1, "{words}");
    }
    assert!(text.starts_with("<svg width=\"600\"") && text.ends_with("</svg>\n"));
    assert_eq!(picture(vec![line()]), text);
}

#[test]
fn each_mark_draws_what_it_says() {
    let drawn = |mark| {
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)];
        let text = picture(vec![Series::new("", mark, points)]);
        let bare = picture(Vec::new());
        let of = |what: &str| count(&text, what) - count(&bare, what);
        (of("stroke-width=\"2\""), of("<circle"), of("<rect"))
    };
    assert_eq!(drawn(Mark::Line), (1, 0, 0));
    assert_eq!(drawn(Mark::Dots), (0, 3, 0));
    assert_eq!(drawn(Mark::LineAndDots), (1, 3, 0));
    assert_eq!(drawn(Mark::Bars), (0, 0, 3));
}

#[test]
fn ranges_and_labels_stand_at_their_points() {
    let mut series = Series::new("", Mark::Dots, [(1.0, 2.0)]);
    series.points[0] = series.points[0].clone().between(1.0, 3.0).labelled("two");
    let text = picture(vec![series]);
    assert_eq!(count(&text, ">two</text>"), 1);
    // A line from the least to the most, and a cross line at each.
    assert_eq!(count(&text, "stroke-width=\"1.5\""), 3);
    let bare = picture(vec![Series::new("", Mark::Dots, [(1.0, 2.0)])]);
    assert_eq!(count(&bare, "stroke-width=\"1.5\""), 0);
    // The axis goes up to the most.
    assert!(text.contains(">3.0</text>") && !bare.contains(">3.0</text>"));
}

#[test]
fn what_is_no_number_is_not_drawn() {
    let points = [
        (0.0, 1.0),
        (1.0, f64::NAN),
        (2.0, 2.0),
        (3.0, f64::INFINITY),
    ];
    let text = picture(vec![Series::new("", Mark::LineAndDots, points)]);
    assert_eq!(count(&text, "<circle"), 2);
    assert_eq!(
        count(&text, "stroke-width=\"2\""),
        0,
        "no two points are beside each other"
    );
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn a_name_never_lies_on_its_panel() {
    let text = picture(vec![Series::new(
        "a name",
        Mark::Line,
        [(0.0, 1.0), (1.0, 1.0)],
    )]);
    let line = text
        .lines()
        .find(|line| line.contains("stroke=\"#0072b2\""))
        .unwrap();
    let numbers = line.split('"').nth(1).unwrap();
    let end: f64 = numbers.split([',', ' ']).nth(2).unwrap().parse().unwrap();
    let name = text.lines().find(|line| line.contains(">a name<")).unwrap();
    let start: f64 = name.split('"').nth(1).unwrap().parse().unwrap();
    assert!(start > end, "{start} {end}");
    assert!(start + 40.0 < 600.0);
}

#[test]
fn panels_below_each_other_end_at_the_same_place() {
    let panel = |name: &str| Panel {
        across: Axis::from_zero("s"),
        series: vec![Series::new(name, Mark::Line, [(0.0, 1.0), (1.0, 1.0)])],
        ..Panel::default()
    };
    let text = svg(&Picture {
        panel: (600, 300),
        panels: vec![panel("short"), panel("a name that is longer")],
        ..Picture::default()
    });
    let lines = text
        .lines()
        .filter(|line| line.contains("stroke-width=\"2\""));
    let end = |line: &str| {
        let numbers = line.split('"').nth(1).unwrap();
        numbers.split([',', ' ']).nth(2).unwrap().to_owned()
    };
    let ends: Vec<String> = lines.map(end).collect();
    assert_eq!(ends.len(), 2);
    assert_eq!(ends[0], ends[1]);
}
