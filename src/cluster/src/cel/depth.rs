//! How deep an expression nests, before anything parses it.
//!
//! Parser and evaluation recurse, and a stack that overflows takes the whole process down. So the text is measured first: an upper
//! bound of the depth of its syntax tree, from brackets and from operators that stand in a row. Both the parser and the evaluation
//! take tens of kilobytes a level in a build without optimisation.

/// The tree's depth is at most this. Never less than the true depth; string literals do not count.
pub(super) fn depth(expression: &str) -> usize {
    let bytes = expression.as_bytes();
    let mut levels = vec![Level::default()];
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => {
                at = after_string(bytes, at, quote);
                continue;
            }
            b'(' | b'[' | b'{' => {
                top(&mut levels).chain += 1;
                levels.push(Level::default());
            }
            b')' | b']' | b'}' => close(&mut levels),
            b',' | b'&' | b'|' => top(&mut levels).next_term(),
            b'?' => top(&mut levels).ternaries += 1,
            b'+' | b'-' | b'*' | b'/' | b'%' | b'.' | b'!' | b'=' | b'<' | b'>' => top(&mut levels).chain += 1,
            b'i' if is_word_in(bytes, at) => top(&mut levels).chain += 1,
            _ => {}
        }
        at += 1;
    }
    while levels.len() > 1 {
        close(&mut levels);
    }
    top(&mut levels).depth()
}

/// What stands between two brackets.
#[derive(Clone, Copy, Default)]
struct Level {
    /// The deepest of the terms that are complete. Terms of `&&`, `||` and lists stand side by side.
    best: usize,
    /// Operators of the current term: each wraps what stands before it.
    chain: usize,
    /// The deepest bracket of the current term.
    inner: usize,
    /// Conditions nest in each other across terms.
    ternaries: usize,
}

impl Level {
    fn next_term(&mut self) {
        self.best = self.best.max(self.chain + self.inner);
        (self.chain, self.inner) = (0, 0);
    }

    /// One for the bracket or the root, one for the logical operator or the list that joins the terms.
    fn depth(mut self) -> usize {
        self.next_term();
        2 + self.ternaries + self.best
    }
}

/// The innermost level; the outermost is never closed.
fn top(levels: &mut Vec<Level>) -> &mut Level {
    if levels.is_empty() {
        levels.push(Level::default());
    }
    let last = levels.len() - 1;
    &mut levels[last]
}

fn close(levels: &mut Vec<Level>) {
    if levels.len() < 2 {
        return;
    }
    if let Some(level) = levels.pop() {
        let outer = top(levels);
        outer.inner = outer.inner.max(level.depth());
    }
}

/// The position behind a string literal; the end of the text when it is not closed, which the parser refuses.
fn after_string(bytes: &[u8], start: usize, quote: u8) -> usize {
    let raw = start > 0 && matches!(bytes[start - 1], b'r' | b'R');
    let triple = [quote; 3];
    let (mut at, end): (usize, &[u8]) =
        if bytes[start..].starts_with(&triple) { (start + 3, &triple) } else { (start + 1, &triple[..1]) };
    while at < bytes.len() {
        if bytes[at..].starts_with(end) {
            return at + end.len();
        }
        at += if bytes[at] == b'\\' && !raw { 2 } else { 1 };
    }
    bytes.len()
}

/// Whether the word `in` stands here: the one operator that is a word.
fn is_word_in(bytes: &[u8], at: usize) -> bool {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    bytes[at..].starts_with(b"in") && !is_word(before) && !is_word(bytes.get(at + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_selectors_are_shallow() {
        for expression in [
            "true",
            r#"device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu""#,
            r#"device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0 || (a && (b || c.d("((((((((")))"#,
        ] {
            assert!(depth(expression) < 16, "{expression}: {}", depth(expression));
        }
    }

    #[test]
    fn terms_side_by_side_do_not_add_up_but_chains_do() {
        assert_eq!(depth(&format!("a{}", " && a".repeat(100))), depth("a && a"));
        for deep in [
            format!("a{}", "+1".repeat(100)),
            format!("a{}", " in b".repeat(100)),
            format!("a{}", "[0]".repeat(100)),
            format!("{}a{}", "(".repeat(100), ")".repeat(100)),
            format!("{}a", "(".repeat(100)),
            format!("(((a)))){}", "+1".repeat(100)),
            format!("{}true{}", "a && b ? c : ".repeat(100), ""),
            format!("{}true{}", "[true].all(x, x && ".repeat(50), ")".repeat(50)),
        ] {
            assert!(depth(&deep) >= 100, "{deep}: {}", depth(&deep));
        }
    }

    #[test]
    fn strings_do_not_count_whatever_they_hold() {
        for text in [r#""(((\"(((""#, "'((('", r#"r"\(((""#, r#""""((" ((""""#, "'unclosed ((("] {
            assert!(depth(text) <= 3, "{text}: {}", depth(text));
        }
    }
}
