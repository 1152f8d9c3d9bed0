//! Numbers in digits and in Chinese numerals.

const DIGITS: &str = "零一二三四五六七八九";

/// A number in digits, with `,` between thousands.
pub(crate) fn digits(text: &str) -> Option<f64> {
    let whole = text.split('.').next().unwrap_or_default();
    let is_grouped = whole.split(',').skip(1).all(|group| group.len() == 3);
    let is_number = |c: char| c.is_ascii_digit() || ".,-".contains(c);
    let plain = (is_grouped && text.chars().all(is_number)).then(|| text.replace(',', ""));
    plain?.parse().ok()
}

/// A Chinese numeral below 10,000 at the start of the text, and its length in bytes.
pub(crate) fn chinese(text: &str) -> Option<(f64, usize)> {
    let negative = text.strip_prefix("零下").or(text.strip_prefix('负'));
    let rest = negative.unwrap_or(text);
    let (mut total, mut digit, mut length, mut rank) = (0, None, 0, 9);
    for c in rest.chars() {
        let c = if c == '两' { '二' } else { c };
        let place = |list: &str| (0..).zip(list.chars()).find(|(_, known)| *known == c);
        let unit = place("个十百千").filter(|(at, _)| (1..rank).contains(&(2 * at)));
        if let Some((value, _)) = place(DIGITS) {
            // Two digits in a row are an estimate, such as 两三.
            if digit.is_some_and(|before| before > 0) {
                return None;
            }
            (digit, rank) = (Some(value), rank.min(3 + 6 * value));
        } else if let Some((zeros, _)) = unit {
            total += digit.take().unwrap_or(1) * 10_u32.pow(zeros);
            rank = 2 * zeros;
        } else {
            break;
        }
        length += c.len_utf8();
    }
    // 二百五 is 250 or 205.
    let is_clear = digit.is_none_or(|digit| digit == 0 || !matches!(rank, 4 | 6));
    let number = f64::from(total + digit.unwrap_or(0));
    let number = if negative.is_some() { -number } else { number };
    (length > 0 && is_clear).then_some((number, text.len() - rest.len() + length))
}
