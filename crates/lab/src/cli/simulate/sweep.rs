//! `--sweep KEY=A,B,C`: repeats the simulation with each value.

use std::str::FromStr;

use api::config::parameter_error;
use model::Kind;
use simulate::fio;

/// Kind of key that a sweep changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A parameter of the drive.
    Parameter,
    /// A key of every section of the job file.
    Job,
}

/// One `--sweep`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    name: String,
    values: Vec<String>,
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`: write KEY=A,B,C, as in iodepth=1,4,16");
        let (name, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        if name.is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Ok(Sweep {
            name: name.to_owned(),
            values,
        })
    }
}

/// Values that distinguish one simulation of a sweep from the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Point(Vec<(Key, String, String)>);

impl Point {
    /// The values of one kind of key.
    pub(super) fn of(&self, wanted: Key) -> impl Iterator<Item = (&str, &str)> {
        let values = self.0.iter().filter(move |(key, _, _)| *key == wanted);
        values.map(|(_, name, value)| (name.as_str(), value.as_str()))
    }

    /// Names and values.
    pub(super) fn named(&self) -> Vec<(String, String)> {
        let all = self.0.iter();
        all.map(|(_, name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Title of the progress line.
    pub(super) fn title(&self, preset: &str) -> String {
        let values = self
            .0
            .iter()
            .map(|(_, name, value)| format!(" {name}={value}"));
        format!("{preset}{}", values.collect::<String>())
    }
}

/// Every combination, the last sweep changing fastest; a single point without changes if there is
/// no sweep.
///
/// # Errors
/// A name is neither a parameter of that kind of drive nor a key of a job file.
pub(super) fn points(sweeps: &[Sweep], kind: Kind) -> Result<Vec<Point>, String> {
    let mut points = vec![Point::default()];
    for Sweep { name, values } in sweeps {
        let key = match kind.parameter(name) {
            Ok(_) => Key::Parameter,
            Err(_) if fio::is_key(name) => Key::Job,
            Err(error) => {
                return Err(format!(
                    "--sweep {name}: not a key of a job file, and {}",
                    parameter_error(&error)
                ));
            }
        };
        let with = |point: &Point, value: &String| {
            let mut all = point.0.clone();
            all.push((key, name.clone(), value.clone()));
            Point(all)
        };
        points = points
            .iter()
            .flat_map(|point| values.iter().map(move |value| with(point, value)))
            .collect();
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_multiply() {
        let sweeps: Vec<Sweep> = ["iodepth=1,4", "read_latency=8us,9us,10us"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let points = points(&sweeps, Kind::Nvm).unwrap();
        assert_eq!(points.len(), 6);
        assert_eq!(
            points[1].named(),
            [
                ("iodepth".to_owned(), "1".to_owned()),
                ("read_latency".to_owned(), "9us".to_owned())
            ]
        );
        let parameters: Vec<_> = points[5].of(Key::Parameter).collect();
        assert_eq!(parameters, [("read_latency", "10us")]);
        assert_eq!(
            points[5].of(Key::Job).collect::<Vec<_>>(),
            [("iodepth", "4")]
        );
        assert_eq!(points[5].title("x"), "x iodepth=4 read_latency=10us");
        assert_eq!(super::points(&[], Kind::Nvm).unwrap(), [Point::default()]);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let sweep: Sweep = "channels=1,2".parse().unwrap();
        let error = points(&[sweep], Kind::Nvm).unwrap_err();
        assert!(error.contains("channels"), "{error}");
        for wrong in ["iodepth", "=1,2", "iodepth=1,,2", "iodepth="] {
            assert!(wrong.parse::<Sweep>().is_err(), "{wrong}");
        }
    }
}
