use plotters::coord::ranged1d::Ranged as _;

use super::*;
use crate::scale::Ruler;

fn ticks(axis: &Axis, values: &[f64]) -> Vec<String> {
    let ruler = Ruler::new(axis, values.iter().copied(), 0.06);
    let names = ruler.ticks.iter().map(|tick| tick.lines.concat());
    names.collect()
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
    assert_eq!(ticks(&fitted, &[56.0, 60.0])[..3], ["56.0", "56.5", "57.0"]);
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
    let place = |value| ruler.map(&value, (0, 100_000));
    assert!((place(4.0) - place(2.0) - (place(2.0) - place(1.0))).abs() <= 2);
    assert!(ruler.shows(1.0) && ruler.shows(16.0));
    assert!(!ruler.shows(0.0), "no power is zero");
    assert!(!ruler.shows(f64::NAN) && !ruler.shows(f64::INFINITY));
}

#[test]
fn an_axis_may_write_its_numbers_its_own_way_or_have_names() {
    let own = Axis::from_zero("x").written(|value| format!("<{value}>"));
    assert_eq!(ticks(&own, &[2.0])[0], "<0>");
    let places = Axis::places("x", vec!["a".into(), "b".into()]);
    assert_eq!(ticks(&places, &[]), ["a", "b"]);
}

/// The text of a picture, each of its elements in one line.
fn drawn(picture: &Picture) -> String {
    let text = svg(picture);
    text.replace(">\n", ">")
        .replace("\n<", "<")
        .replace("><", ">\n<")
}

fn picture(series: Vec<Series>) -> String {
    drawn(&Picture {
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
    assert!(text.starts_with("<svg width=\"600\"") && text.ends_with("</svg>"));
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
    let ranges = |text: &str| count(text, "<line opacity=\"1\" stroke=\"#0072B2\"");
    assert_eq!(ranges(&text), 3);
    let bare = picture(vec![Series::new("", Mark::Dots, [(1.0, 2.0)])]);
    assert_eq!(ranges(&bare), 0);
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

/// Value of an attribute of the only element with these words.
fn attribute<'a>(text: &'a str, words: &str, name: &str) -> &'a str {
    let mut all = text.lines().filter(|line| line.contains(words));
    let (line, None) = (all.next().unwrap(), all.next()) else {
        panic!("{words} is not alone in {text}");
    };
    let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
    rest.split_once('"').unwrap().0
}

/// Where lines end that are as thick as those of series, and not as long as a sign beside a name.
fn ends(text: &str) -> Vec<i32> {
    let lines = text
        .lines()
        .filter(|line| line.contains("stroke-width=\"2\""));
    let across = |line: &str| {
        let points = attribute(line, "<polyline", "points").trim_end();
        let across = points
            .split(' ')
            .map(|point| point.split_once(',').unwrap().0);
        across
            .map(|x| x.parse::<i32>().unwrap())
            .collect::<Vec<_>>()
    };
    let lines = lines.map(across).filter(|x| x.last().unwrap() - x[0] > 18);
    lines.map(|x| *x.last().unwrap()).collect()
}

#[test]
fn a_name_never_lies_on_its_panel() {
    let line = Series::new("a name", Mark::Line, [(0.0, 1.0), (1.0, 1.0)]);
    let text = picture(vec![line]);
    let start: i32 = attribute(&text, ">a name<", "x").parse().unwrap();
    assert!(start > ends(&text)[0]);
    assert!(start + 40 < 600);
}

#[test]
fn panels_below_each_other_end_at_the_same_place() {
    let panel = |name: &str| Panel {
        across: Axis::from_zero("s"),
        series: vec![Series::new(name, Mark::Line, [(0.0, 1.0), (1.0, 1.0)])],
        ..Panel::default()
    };
    let text = drawn(&Picture {
        panel: (600, 300),
        panels: vec![panel("short"), panel("a name that is longer")],
        ..Picture::default()
    });
    let ends = ends(&text);
    assert_eq!(ends.len(), 2);
    assert_eq!(ends[0], ends[1]);
}

#[test]
fn a_place_has_all_of_its_name() {
    let names = [
        "this drive: virtual time",
        "this drive: for real, net",
        "all others",
    ];
    let bars = Series::new("", Mark::Bars, [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]);
    let text = drawn(&Picture {
        panel: (400, 300),
        panels: vec![Panel {
            across: Axis::places("", names.map(str::to_owned).to_vec()),
            series: vec![bars],
            ..Panel::default()
        }],
        ..Picture::default()
    });
    let place = |words: &str| {
        let of = |name| {
            attribute(&text, &format!(">{words}<"), name)
                .parse::<i32>()
                .unwrap()
        };
        (of("x"), of("y"))
    };
    let (first, second, third) = (
        place("virtual time"),
        place("for real, net"),
        place("all others"),
    );
    assert_eq!(count(&text, ">this drive:<"), 2);
    assert!(first.0 < second.0 && second.0 < third.0);
    assert!(
        first.1 == second.1 && first.1 > third.1,
        "below the first line"
    );
}

#[test]
fn numbers_that_would_lie_on_each_other_are_left_out() {
    let places = |count: usize| Axis::places("", (0..count).map(|at| at.to_string()).collect());
    let left = |axis: &Axis, pixels| {
        let ruler = Ruler::new(axis, [].into_iter(), 0.0).along(axis, pixels);
        ruler
            .ticks
            .iter()
            .map(|tick| tick.value)
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&places(10), 400).len(), 10);
    let few = left(&places(100), 400);
    // Two digits of 12 pixels take 13 at least, a hundredth of the axis is 4.
    assert!((10..=27).contains(&few.len()), "{few:?}");
    assert_eq!(few[0], 0.0);
}

#[test]
fn nothing_fails_or_takes_for_ever() {
    let values = [
        0.0,
        -1.0,
        1.0,
        f64::MIN_POSITIVE,
        5e-324,
        1e-9,
        1e16 + 2.0,
        1e300,
        -1e300,
        f64::MAX,
        f64::MIN,
        f64::INFINITY,
        f64::NAN,
    ];
    let scales = [
        Scale::FromZero(0.0),
        Scale::Fitted,
        Scale::Doublings,
        Scale::Decades,
        Scale::Places(vec!["one".into(), String::new()]),
    ];
    let marks = [Mark::Line, Mark::Dots, Mark::LineAndDots, Mark::Bars];
    for (number, scale) in scales.iter().enumerate() {
        let panel = |first: f64, second: f64| {
            let mut series =
                Series::new("n", marks[number % 4], [(first, second), (second, first)]);
            series.points[0] = series.points[0].clone().between(second, first);
            Panel {
                across: Axis::of("", scale.clone()),
                up: Axis::of("", scales[(number + 1) % 5].clone()),
                series: vec![series],
                ..Panel::default()
            }
        };
        let all = |first: &f64| values.map(|second| panel(*first, second));
        let text = svg(&Picture {
            panels: values.iter().flat_map(all).collect(),
            ..Picture::default()
        });
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
    assert!(svg(&Picture::default()).ends_with("</svg>\n"));
}
