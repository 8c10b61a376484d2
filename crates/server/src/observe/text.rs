//! Metrics as text: OpenMetrics 1.0, and the older Prometheus text format (0.0.4).
//!
//! The formats differ in the names of counters (OpenMetrics names the family without `_total`), in
//! units, and in `# EOF`.

use std::fmt::Write;

use super::histogram::Histogram;

/// Format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text, version 0.0.4.
    Text,
    /// Prometheus' protocol buffers.
    Protobuf,
}

impl Format {
    /// The format that an `Accept` header requests (RFC 9110, 12.5.1): the supported one with the
    /// highest weight, and of equal ones the first. Default: Prometheus text.
    pub(crate) fn asked_for(accept: &str) -> Self {
        let mut asked = (Format::Text, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<_> = parts.collect();
            let has = |parameter: &str| parameters.iter().any(|p| unquoted(p) == parameter);
            let format = match &*kind {
                "application/openmetrics-text" => Format::OpenMetrics,
                "text/plain" => Format::Text,
                "application/vnd.google.protobuf"
                    if has("proto=io.prometheus.client.metricfamily")
                        && has("encoding=delimited") =>
                {
                    Format::Protobuf
                }
                _ => continue,
            };
            let weight = parameters.iter().find_map(|p| p.strip_prefix("q="));
            let weight = weight.map_or(1.0, |text| text.parse().unwrap_or(0.0));
            if weight > asked.1 {
                asked = (format, weight);
            }
        }
        asked.0
    }

    /// The content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// A media type parameter in normal form: without case, quotes, and spaces around `=`.
fn unquoted(parameter: &str) -> String {
    parameter.replace(['"', ' '], "").to_ascii_lowercase()
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Counts of values by size, which only grow.
    Histogram,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Unit of a metric, which is the suffix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A count.
    None,
    Bytes,
    /// Nanoseconds, written as seconds.
    Seconds,
    Kelvin,
    /// A count in thousandths.
    Thousandths,
}

impl Unit {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Unit::None | Unit::Thousandths => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Kelvin => "kelvin",
        }
    }
}

/// A metric family.
#[derive(Debug)]
pub(crate) struct Family {
    /// Name, with the unit and without `_total`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    /// Description, in a sentence.
    pub(crate) help: &'static str,
    pub(crate) samples: Vec<Sample>,
}

/// A value with its labels.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: Number,
}

/// Value of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// In the unit of the family.
    Whole(u64),
    /// For a family of histograms.
    Distribution(Histogram),
}

/// Encodes families; families without values are omitted.
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
            Kind::Gauge | Kind::Histogram => "",
        };
        let of_family = match format {
            Format::OpenMetrics => "",
            Format::Text | Format::Protobuf => total,
        };
        writeln!(text, "# TYPE {name}{of_family} {}", self.kind.word())?;
        if format == Format::OpenMetrics && !self.unit.word().is_empty() {
            writeln!(text, "# UNIT {name} {}", self.unit.word())?;
        }
        writeln!(text, "# HELP {name}{of_family} {}", self.help)?;
        for sample in &self.samples {
            match &sample.value {
                Number::Whole(value) => {
                    let number = self.number(*value);
                    write_sample(
                        text,
                        &format!("{name}{total}"),
                        &sample.labels,
                        None,
                        &number,
                    )?;
                }
                Number::Distribution(histogram) => self.write_histogram(text, sample, histogram)?,
            }
        }
        Ok(())
    }

    /// Writes the classic buckets; text formats have no native ones.
    fn write_histogram(
        &self,
        text: &mut String,
        sample: &Sample,
        histogram: &Histogram,
    ) -> std::fmt::Result {
        let (name, labels) = (self.name, &sample.labels);
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.classic() {
            let bound = bound_of(bound);
            write_sample(text, &bucket, labels, Some(&bound), &count.to_string())?;
        }
        let count = histogram.count().to_string();
        write_sample(text, &bucket, labels, Some("+Inf"), &count)?;
        let sum = self.number(histogram.sum_ns);
        write_sample(text, &format!("{name}_sum"), labels, None, &sum)?;
        write_sample(text, &format!("{name}_count"), labels, None, &count)
    }

    /// Writes a number; nanoseconds as seconds, without rounding.
    fn number(&self, value: u64) -> String {
        const SECOND: u64 = 1_000_000_000;
        match self.unit {
            Unit::Seconds => format!("{}.{:09}", value / SECOND, value % SECOND),
            Unit::Thousandths => format!("{}.{:03}", value / 1000, value % 1000),
            _ => value.to_string(),
        }
    }
}

/// Writes a line; `bound` is the label `le`.
fn write_sample(
    text: &mut String,
    name: &str,
    labels: &[(&'static str, String)],
    bound: Option<&str>,
    number: &str,
) -> std::fmt::Result {
    write!(text, "{name}")?;
    let labels = labels.iter().map(|(label, value)| (*label, &**value));
    let mut before = '{';
    for (label, value) in labels.chain(bound.map(|bound| ("le", bound))) {
        write!(text, "{before}{label}=\"{}\"", escaped(value))?;
        before = ',';
    }
    let close = if before == ',' { "}" } else { "" };
    writeln!(text, "{close} {number}")
}

/// A bound in nanoseconds as seconds, formatted as Prometheus itself does: the same in all formats,
/// because a different text would be a different series.
fn bound_of(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    if seconds >= 1e-4 {
        return seconds.to_string();
    }
    let text = format!("{seconds:e}");
    match text.split_once("e-") {
        Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
        None => text,
    }
}

/// Escapes backslash, quote and line feed (OpenMetrics 1.0, ABNF of escaped-string).
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
        let value = Number::Whole(value);
        Sample { labels, value }
    }

    /// Written by hand from the specifications (OpenMetrics 1.0, 4.1; Prometheus, exposition
    /// formats).
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
        // as Prometheus 2.42 and curl send it
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::asked_for(prometheus), Format::OpenMetrics);
        assert_eq!(Format::asked_for("*/*"), Format::Text);
        // as Prometheus 2.42 and 3 send it with native histograms
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::asked_for(native), Format::Protobuf);
        let quoted = "application/vnd.google.protobuf; proto=\"io.prometheus.client.MetricFamily\"; encoding=delimited;q=0.6,application/openmetrics-text;q=0.5";
        assert_eq!(Format::asked_for(quoted), Format::Protobuf);
        let rather_text = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.2,text/plain;q=0.4";
        assert_eq!(Format::asked_for(rather_text), Format::Text);
        // text-encoded, compact, and other messages are unsupported
        let other = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text,application/openmetrics-text;q=0.1";
        assert_eq!(Format::asked_for(other), Format::OpenMetrics);
    }

    #[test]
    fn a_histogram_is_written_with_its_classic_buckets() {
        let histogram = Histogram {
            buckets: vec![(1023, 2), (1087, 4), (200_703, 1)],
            sum_ns: 212_345,
        };
        let family = Family {
            name: "a_seconds",
            kind: Kind::Histogram,
            unit: Unit::Seconds,
            help: "H.",
            samples: vec![Sample {
                labels: vec![("x", "y".to_owned())],
                value: Number::Distribution(histogram),
            }],
        };
        let text = write(&[family], Format::OpenMetrics);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..6],
            [
                "# TYPE a_seconds histogram",
                "# UNIT a_seconds seconds",
                "# HELP a_seconds H.",
                "a_seconds_bucket{x=\"y\",le=\"1.023e-06\"} 2",
                "a_seconds_bucket{x=\"y\",le=\"2.047e-06\"} 6",
                "a_seconds_bucket{x=\"y\",le=\"4.095e-06\"} 6",
            ]
        );
        assert!(text.contains("a_seconds_bucket{x=\"y\",le=\"0.000131071\"} 6\n"));
        assert!(text.contains("a_seconds_bucket{x=\"y\",le=\"0.000262143\"} 7\n"));
        assert_eq!(
            lines[lines.len() - 4..],
            [
                "a_seconds_bucket{x=\"y\",le=\"+Inf\"} 7",
                "a_seconds_sum{x=\"y\"} 0.000212345",
                "a_seconds_count{x=\"y\"} 7",
                "# EOF",
            ]
        );
    }
}
