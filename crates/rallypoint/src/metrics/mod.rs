//! Metrics in Prometheus' text format.
//!
//! Values that exist anyway are read when the page is built; only what happens too often to be remembered is
//! counted, by atomics.

mod process;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, TextEncoder};
#[cfg(feature = "cli")]
use prometheus::{CounterVec, GaugeVec, Opts, proto::LabelPair};

pub(crate) use self::process::process_metrics;

/// The content type of the page.
pub(crate) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page: all families, in the order of their names.
pub(crate) fn page(mut families: Vec<MetricFamily>) -> String {
    families.retain(|family| !family.get_metric().is_empty());
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new().encode_to_string(&families).expect("text can be written into memory")
}

/// A gauge without labels, with the value of this moment.
pub(crate) fn gauge(name: &str, help: &str, value: f64) -> Vec<MetricFamily> {
    let gauge = Gauge::new(name, help).expect(VALID);
    gauge.set(value);
    gauge.collect()
}

/// A counter without labels, with the value of this moment.
pub(crate) fn counter(name: &str, help: &str, value: f64) -> Vec<MetricFamily> {
    let counter = Counter::new(name, help).expect(VALID);
    counter.inc_by(value);
    counter.collect()
}

/// A gauge with one label: a value for each value of the label.
#[cfg(feature = "cli")]
pub(crate) fn gauges(
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, f64)],
) -> Vec<MetricFamily> {
    let gauges = GaugeVec::new(Opts::new(name, help), &[label]).expect(VALID);
    for (of, value) in values {
        gauges.with_label_values(&[*of]).set(*value);
    }
    gauges.collect()
}

/// A counter with one label: a value for each value of the label.
#[cfg(feature = "cli")]
pub(crate) fn counters(
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, f64)],
) -> Vec<MetricFamily> {
    let counters = CounterVec::new(Opts::new(name, help), &[label]).expect(VALID);
    for (of, value) in values {
        counters.with_label_values(&[*of]).inc_by(*value);
    }
    counters.collect()
}

/// These families with one more label.
#[cfg(feature = "cli")]
pub(crate) fn with_label(
    mut families: Vec<MetricFamily>,
    name: &str,
    value: &str,
) -> Vec<MetricFamily> {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    for metric in families.iter_mut().flat_map(MetricFamily::mut_metric) {
        let mut labels = metric.take_label();
        labels.push(label.clone());
        metric.set_label(labels);
    }
    families
}

/// Why metrics can always be created.
pub(crate) const VALID: &str = "names and labels are constants that Prometheus allows";
