//! Metrics of this process, under the names that all exporters of Prometheus give them.

use std::fs;

use prometheus::proto::MetricFamily;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::{counter, gauge};

/// Memory, descriptors and processor time of this process. Reads `/proc`, so it blocks for as long as that takes.
pub(crate) fn process_metrics() -> Vec<MetricFamily> {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 * 1e-9;
    let mut families =
        counter("process_cpu_seconds_total", "Processor time that this process has used.", cpu);
    if let Some([size, resident]) = memory() {
        families.extend(gauge(
            "process_resident_memory_bytes",
            "Memory of this process that is in RAM.",
            resident,
        ));
        families.extend(gauge(
            "process_virtual_memory_bytes",
            "Address space of this process.",
            size,
        ));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them reads the directory.
        let open = open.count().saturating_sub(1);
        families.extend(gauge(
            "process_open_fds",
            "Descriptors that this process has open.",
            open as f64,
        ));
    }
    let limit = getrlimit(Resource::Nofile).current.map_or(f64::INFINITY, |limit| limit as f64);
    families.extend(gauge(
        "process_max_fds",
        "Limit of descriptors that this process may have open.",
        limit,
    ));
    families
}

/// The size of the address space and of its part that is in RAM, in bytes.
fn memory() -> Option<[f64; 2]> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = pages.split_ascii_whitespace().map(str::parse::<f64>);
    let page = rustix::param::page_size() as f64;
    Some([pages.next()?.ok()? * page, pages.next()?.ok()? * page])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::page;

    #[test]
    fn this_process_uses_memory_time_and_descriptors() {
        let page = page(process_metrics());
        let value = |name: &str| -> f64 {
            let line = page.lines().find(|line| line.split(' ').next() == Some(name));
            line.unwrap_or_else(|| panic!("{name} in {page}"))[name.len()..].trim().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e5);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_cpu_seconds_total") > 0.0);
    }
}
