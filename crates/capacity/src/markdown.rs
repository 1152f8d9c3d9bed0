//! Tables and numbers in Markdown.

/// A table with aligned columns; the first row is the head.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut table = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            table.push_str(&format!("| {cell:<width$} "));
        }
        table.push_str("|\n");
        if index == 0 {
            for width in &widths {
                table.push_str(&format!("|{:-<1$}", "", width + 2));
            }
            table.push_str("|\n");
        }
    }
    table
}

/// A whole number with a comma between groups of three digits.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Three digits, or all before the point.
pub(crate) fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => count(value),
    }
}

/// Two significant digits of a large number, in words of thousands.
pub(crate) fn about(value: f64) -> String {
    let (scaled, unit) = match value {
        ..1e6 => return count((value / 1e3).round() * 1e3),
        ..1e9 => (value / 1e6, " million"),
        _ => (value / 1e9, " billion"),
    };
    if scaled < 10.0 {
        format!("{scaled:.1}{unit}")
    } else {
        format!("{}{unit}", count(scaled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(count(999.4), "999");
        assert_eq!(count(1_000.0), "1,000");
        assert_eq!(count(12_345_678.0), "12,345,678");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(9.994), "9.99");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(1_584.4), "1,584");
        assert_eq!(about(123_456.0), "123,000");
        assert_eq!(about(1_234_567.0), "1.2 million");
        assert_eq!(about(45_600_000.0), "46 million");
        assert_eq!(about(2_000_000_000.0), "2.0 billion");
    }
}
