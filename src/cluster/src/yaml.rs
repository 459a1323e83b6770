//! What a reader of YAML complains about, in one line: it draws the place over several, which is too much for a log.

/// The complaint without the drawing, and without the line that it was found in when that is given: who tells it, tells the line first.
#[must_use]
pub fn complaint(text: &str, place: Option<(u64, u64)>) -> String {
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let Some((line, column)) = place else { return first.to_owned() };
    let first = first.strip_prefix(&format!("line {line} column {column}: ")).unwrap_or(first);
    first.strip_suffix(&format!(" at line {line}, column {column}")).unwrap_or(first).to_owned()
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn a_complaint_is_one_line_and_its_place_is_not_told_twice() {
        let drawn = "error: line 3 column 16: expected string scalar\n --> <input>:3:16\n  | ^ expected string scalar";
        assert_eq!(complaint(drawn, Some((3, 16))), "expected string scalar");
        assert_eq!(complaint(drawn, None), "line 3 column 16: expected string scalar");
        assert_eq!(complaint("unexpected end of input at line 1, column 1", Some((1, 1))), "unexpected end of input");
        assert_eq!(complaint("", None), "");
    }
}
