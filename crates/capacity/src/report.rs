//! A plan as text.

use std::fmt;

use crate::{
    load::BYTES_PER_GIB,
    markdown::{about, count, number, table},
    plan::Plan,
};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = || "none is enough".to_owned();
        let head = ["", "nodes", "cores in use", "GiB in use for devices"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for nodes in &self.nodes {
            rows.push(vec![
                nodes.role.plural().to_owned(),
                nodes.count.map_or_else(none, count),
                number(nodes.cores),
                number(nodes.bytes / BYTES_PER_GIB),
            ]);
        }
        f.write_str(&table(&rows))?;
        if let (Some(cores), Some(gib), Some(dollars)) =
            (self.machine_cores, self.machine_gib, self.device_month)
        {
            writeln!(
                f,
                "\n{} cores and {} GiB, ${dollars:.5} for each device and month.",
                count(cores),
                count(gib)
            )?;
        }
        if self.uncached > 0.0 {
            let percent = self.uncached * 100.0;
            writeln!(
                f,
                "{percent:.0} % of the calls read the directory: a gateway's cache is too small."
            )?;
        }
        writeln!(
            f,
            "\nWhat there is one of, and the devices that it carries at this load:\n"
        )?;
        let head = ["", "devices", ""];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for limit in &self.limits {
            let exceeded = limit.devices < self.load.devices;
            rows.push(vec![
                limit.what.to_owned(),
                about(limit.devices),
                if exceeded { "less than this load" } else { "" }.to_owned(),
            ]);
        }
        f.write_str(&table(&rows))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Coefficients, Load, Machine, Plan, Prices};

    #[test]
    fn plan_lists_nodes_and_limits() {
        let load = Load {
            devices: 10_000_000.0,
            turns_per_device_second: 0.001,
            ..Load::default()
        };
        let costs = Coefficients::committed().unwrap();
        let plan = Plan::new(&costs, &load, &Machine::default(), &Prices::default());
        let text = plan.to_string();
        for part in [
            "| edges ",
            "| chat ",
            "98 % of the calls",
            "| one Redis: memory ",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
