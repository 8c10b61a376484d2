//! Metrics as text: OpenMetrics 1.0, and the older text format of Prometheus (0.0.4).
//!
//! They differ in the names of counters (OpenMetrics names the family without `_total`), in units, and in `# EOF`.

use std::fmt::Write;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text, version 0.0.4.
    Text,
}

impl Format {
    /// What an `Accept` header asks for. Whoever names neither gets the older one.
    pub(crate) fn asked_for(accept: &str) -> Self {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Text,
        }
    }

    /// The content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// The unit of a number, which is the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things are counted.
    None,
    Bytes,
    /// Numbers are nanoseconds, and written as seconds.
    Seconds,
}

impl Unit {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
        }
    }
}

/// Numbers of one name.
#[derive(Debug)]
pub(crate) struct Family {
    /// The name, with the unit and without `_total`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    /// What it counts, in a sentence.
    pub(crate) help: &'static str,
    pub(crate) samples: Vec<Sample>,
}

/// One number, and what it is of.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: u64,
}

/// Writes families; those without a number are left out.
pub(super) fn write(families: &[Family], format: Format) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        // writing to a string does not fail
        let _ = family.write(format, &mut text);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

impl Family {
    fn write(&self, format: Format, text: &mut String) -> std::fmt::Result {
        let name = self.name;
        let total = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
        };
        let of_family = match format {
            Format::OpenMetrics => "",
            Format::Text => total,
        };
        writeln!(text, "# TYPE {name}{of_family} {}", self.kind.word())?;
        if format == Format::OpenMetrics && self.unit != Unit::None {
            writeln!(text, "# UNIT {name} {}", self.unit.word())?;
        }
        writeln!(text, "# HELP {name}{of_family} {}", self.help)?;
        for sample in &self.samples {
            write!(text, "{name}{total}")?;
            for (at, (label, value)) in sample.labels.iter().enumerate() {
                let before = if at == 0 { '{' } else { ',' };
                write!(text, "{before}{label}=\"{}\"", escaped(value))?;
            }
            let close = if sample.labels.is_empty() { "" } else { "}" };
            writeln!(text, "{close} {}", self.number(sample.value))?;
        }
        Ok(())
    }

    /// Nanoseconds are written as seconds, to the last one.
    fn number(&self, value: u64) -> String {
        const SECOND: u64 = 1_000_000_000;
        match self.unit {
            Unit::Seconds => format!("{}.{:09}", value / SECOND, value % SECOND),
            _ => value.to_string(),
        }
    }
}

/// Backslash, quote and line feed are escaped (OpenMetrics 1.0, ABNF of escaped-string).
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(kind: Kind, unit: Unit, samples: Vec<Sample>) -> Family {
        let (name, help) = ("a_b", "What it is.");
        Family {
            name,
            kind,
            unit,
            help,
            samples,
        }
    }

    fn sample(labels: &[(&'static str, &str)], value: u64) -> Sample {
        let labels = labels.iter().map(|(l, v)| (*l, (*v).to_owned())).collect();
        Sample { labels, value }
    }

    /// Written by hand after the specification's text format (OpenMetrics 1.0, 4.1; Prometheus, exposition formats).
    #[test]
    fn both_formats_are_what_their_specifications_have() {
        let samples = vec![
            sample(&[("x", "one"), ("y", "a\"b\\c\nd")], 1_500_000_000),
            sample(&[], 7),
        ];
        let families = [
            family(Kind::Counter, Unit::Seconds, samples),
            family(Kind::Gauge, Unit::None, vec![]),
            family(Kind::Gauge, Unit::Bytes, vec![sample(&[("x", "z")], 9)]),
        ];
        let counters = "{x=\"one\",y=\"a\\\"b\\\\c\\nd\"} 1.500000000\na_b_total 0.000000007\n";
        assert_eq!(
            write(&families, Format::OpenMetrics),
            format!(
                "# TYPE a_b counter\n# UNIT a_b seconds\n# HELP a_b What it is.\na_b_total{counters}# TYPE a_b gauge\n# UNIT a_b bytes\n# HELP a_b What it is.\na_b{{x=\"z\"}} 9\n# EOF\n"
            )
        );
        assert_eq!(
            write(&families, Format::Text),
            format!(
                "# TYPE a_b_total counter\n# HELP a_b_total What it is.\na_b_total{counters}# TYPE a_b gauge\n# HELP a_b What it is.\na_b{{x=\"z\"}} 9\n"
            )
        );
    }

    #[test]
    fn a_scraper_gets_the_format_that_it_asks_for() {
        // what Prometheus 2.42 and curl send
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::asked_for(prometheus), Format::OpenMetrics);
        assert_eq!(Format::asked_for("*/*"), Format::Text);
    }
}
