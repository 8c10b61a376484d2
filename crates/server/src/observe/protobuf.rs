//! Metrics as Prometheus protocol buffers (`io.prometheus.client.MetricFamily`, length-delimited),
//! the only format with native histograms.
//!
//! The messages are the used parts of `metrics.proto` in Prometheus' client model (proto2). They
//! are few, so they are written by hand.

use prost::Message;

use super::histogram::{Histogram, SCHEMA};
use super::text::{Family, Kind, Number, Sample, Unit};

const SECOND: f64 = 1e9;

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) help: Option<String>,
    /// 0: counter, 1: gauge, 4: histogram.
    #[prost(int32, optional, tag = "3")]
    pub(super) kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub(super) metric: Vec<Metric>,
    #[prost(string, optional, tag = "5")]
    pub(super) unit: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(super) label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub(super) gauge: Option<Value>,
    #[prost(message, optional, tag = "3")]
    pub(super) counter: Option<Value>,
    #[prost(message, optional, tag = "7")]
    pub(super) histogram: Option<Buckets>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelPair {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) value: Option<String>,
}

/// `Gauge` and `Counter`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Value {
    #[prost(double, optional, tag = "1")]
    pub(super) value: Option<f64>,
}

/// `Histogram`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Buckets {
    #[prost(uint64, optional, tag = "1")]
    pub(super) sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(super) sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    pub(super) schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub(super) zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub(super) zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub(super) positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub(super) positive_delta: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    pub(super) cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(super) upper_bound: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    pub(super) offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) length: Option<u32>,
}

/// Encodes families; families without values are omitted.
pub(super) fn write(families: &[Family]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        bytes.extend_from_slice(&message(family).encode_length_delimited_to_vec());
    }
    bytes
}

fn message(family: &Family) -> MetricFamily {
    let kind = match family.kind {
        Kind::Counter => 0,
        Kind::Gauge => 1,
        Kind::Histogram => 4,
    };
    // as in the text format
    let total = match family.kind {
        Kind::Counter => "_total",
        Kind::Gauge | Kind::Histogram => "",
    };
    let unit = family.unit.word();
    MetricFamily {
        name: Some(format!("{}{total}", family.name)),
        help: Some(family.help.to_owned()),
        kind: Some(kind),
        metric: family.samples.iter().map(|s| metric(family, s)).collect(),
        unit: (!unit.is_empty()).then(|| unit.to_owned()),
    }
}

fn metric(family: &Family, sample: &Sample) -> Metric {
    let label = sample.labels.iter().map(|(name, value)| LabelPair {
        name: Some((*name).to_owned()),
        value: Some(value.clone()),
    });
    let mut metric = Metric {
        label: label.collect(),
        ..Metric::default()
    };
    match &sample.value {
        Number::Whole(value) => {
            let value = *value as f64;
            let value = Value {
                value: Some(match family.unit {
                    Unit::Seconds => value / SECOND,
                    Unit::Thousandths => value / 1000.0,
                    _ => value,
                }),
            };
            match family.kind {
                Kind::Counter => metric.counter = Some(value),
                Kind::Gauge | Kind::Histogram => metric.gauge = Some(value),
            }
        }
        Number::Distribution(histogram) => metric.histogram = Some(buckets(histogram)),
    }
    metric
}

fn buckets(histogram: &Histogram) -> Buckets {
    let native = histogram.native();
    let count = histogram.count();
    let classic = histogram.classic().map(|(bound, count)| Bucket {
        cumulative_count: Some(count),
        upper_bound: Some(bound as f64 / SECOND),
    });
    let all = Bucket {
        cumulative_count: Some(count),
        upper_bound: Some(f64::INFINITY),
    };
    let spans = native.spans.iter().map(|span| BucketSpan {
        offset: Some(span.offset),
        length: Some(span.length),
    });
    let mut positive_span: Vec<_> = spans.collect();
    if positive_span.is_empty() {
        // tells a native histogram without values from a classic one
        let (offset, length) = (Some(0), Some(0));
        positive_span.push(BucketSpan { offset, length });
    }
    Buckets {
        sample_count: Some(count),
        sample_sum: Some(histogram.sum_ns as f64 / SECOND),
        bucket: classic.chain([all]).collect(),
        schema: Some(SCHEMA),
        zero_threshold: Some(0.0),
        zero_count: Some(native.zeros),
        positive_span,
        positive_delta: native.deltas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte for byte by the protocol buffer encoding and `metrics.proto`, with field numbers and
    /// types by hand.
    #[test]
    fn a_message_is_what_its_definition_says() {
        let family = Family {
            name: "a",
            kind: Kind::Counter,
            unit: Unit::Bytes,
            help: "H.",
            samples: vec![Sample {
                labels: vec![("x", "y".to_owned())],
                value: Number::Whole(2),
            }],
        };
        let two = [0, 0, 0, 0, 0, 0, 0, 0x40];
        let mut metric = vec![0x0a, 6, 0x0a, 1, b'x', 0x12, 1, b'y', 0x1a, 9, 0x09];
        metric.extend(two);
        let mut message = vec![0x0a, 7];
        message.extend(b"a_total");
        message.extend([0x12, 2, b'H', b'.', 0x18, 0, 0x22, metric.len() as u8]);
        message.extend(metric);
        message.extend([0x2a, 5]);
        message.extend(b"bytes");
        let mut wanted = vec![message.len() as u8];
        wanted.extend(message);
        assert_eq!(write(&[family]), wanted);
    }

    #[test]
    fn a_histogram_has_both_kinds_of_buckets() {
        let family = Family {
            name: "a_seconds",
            kind: Kind::Histogram,
            unit: Unit::Seconds,
            help: "H.",
            samples: vec![Sample {
                labels: vec![],
                value: Number::Distribution(Histogram {
                    buckets: vec![(0, 1), (1023, 2), (1087, 3)],
                    sum_ns: 5_000,
                }),
            }],
        };
        let bytes = write(&[family]);
        let read = MetricFamily::decode_length_delimited(&bytes[..]).unwrap();
        let histogram = read.metric[0].histogram.as_ref().unwrap();
        assert_eq!(read.kind, Some(4));
        assert_eq!(histogram.sample_count, Some(6));
        assert_eq!(histogram.sample_sum, Some(5e-6));
        assert_eq!(histogram.zero_count, Some(1));
        let first = histogram.bucket[0];
        assert_eq!(first.cumulative_count, Some(3));
        assert_eq!(first.upper_bound, Some(1023e-9));
        let last = histogram.bucket.last().unwrap();
        assert_eq!(last.upper_bound, Some(f64::INFINITY));
        assert_eq!(last.cumulative_count, Some(6));
        // log2 of 1007.5 ns and of 1055.5 ns, in seconds, times 16: -318.6 and -317.5
        let spans: Vec<_> = histogram.positive_span.iter().collect();
        assert_eq!(spans.len(), 1, "{spans:?}");
        assert_eq!((spans[0].offset, spans[0].length), (Some(-318), Some(2)));
        assert_eq!(histogram.positive_delta, [2, 1]);
    }
}
