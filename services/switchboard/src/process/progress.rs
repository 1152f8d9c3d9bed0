//! What a shutdown waits for, as the metrics of the process count it.

use prometheus::Registry;

/// Work in progress: its name, for one and for more, and the gauges that count it. Of several gauges
/// each counts the same work at another place, so that the largest is right.
const WORK: [(&str, &str, &[&str]); 3] = [
    (
        "call of a device",
        "calls of devices",
        &[
            "switchboard_gateway_calls_in_flight",
            "switchboard_edge_calls_in_flight",
        ],
    ),
    (
        "HTTP request",
        "HTTP requests",
        &["switchboard_http_requests_in_flight"],
    ),
    (
        "answer to a user",
        "answers to users",
        &["switchboard_chat_turns_under_way"],
    ),
];

/// Describes the work in progress, such as `1 call of a device and 1 HTTP request`; `None` without
/// any. The request of a call counts as well.
pub(super) fn in_progress(registry: &Registry) -> Option<String> {
    let families = registry.gather();
    let count = |name: &str| {
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.map_or(&[][..], |family| family.get_metric());
        let values = metrics.iter().map(|metric| metric.get_gauge().get_value());
        values.sum::<f64>()
    };
    let parts = WORK.iter().filter_map(|(one, more, gauges)| {
        let counted = gauges.iter().map(|gauge| count(gauge)).fold(0.0, f64::max);
        match counted {
            ..1.0 => None,
            1.0 => Some(format!("1 {one}")),
            _ => Some(format!("{counted:.0} {more}")),
        }
    });
    let parts: Vec<_> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

#[cfg(test)]
mod tests {
    use prometheus::IntGauge;

    use super::*;

    #[test]
    fn work_in_progress_is_counted_once() {
        let registry = Registry::new();
        let gauge = |name: &str| {
            let gauge = IntGauge::new(name, "h").unwrap();
            registry.register(Box::new(gauge.clone())).unwrap();
            gauge
        };
        let calls = WORK[0].2.iter().map(|name| gauge(name));
        let calls: Vec<_> = calls.collect();
        let turns = gauge(WORK[2].2[0]);
        assert_eq!(in_progress(&registry), None);
        calls.iter().for_each(IntGauge::inc);
        assert_eq!(in_progress(&registry).unwrap(), "1 call of a device");
        turns.set(2);
        let expected = "1 call of a device and 2 answers to users";
        assert_eq!(in_progress(&registry).unwrap(), expected);
    }
}
