//! A file into documents, at the lines that begin with `---`.
//!
//! In YAML such a line ends whatever was open, so cutting there cannot cut a value in two; and a
//! document that does not parse then leaves those after it readable.

/// One document as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::declare) struct Piece<'a> {
    /// How many lines of the file stand before it.
    pub(in crate::declare) lines_before: u32,
    /// Its text, without the separators.
    pub(in crate::declare) text: &'a str,
    /// What stood behind the `---` that began it, unless that was empty or a comment.
    pub(in crate::declare) trailing: Option<&'a str>,
}

impl Piece<'_> {
    /// Whether nothing is in it but blank lines, comments and directives.
    pub(in crate::declare) fn is_blank(&self) -> bool {
        self.trailing.is_none()
            && self.text.lines().all(|line| {
                let word = line.trim_start();
                word.is_empty() || word.starts_with('#') || line.starts_with('%') || line.trim_end() == "..."
            })
    }
}

/// Cuts a file into its documents, blank ones included.
pub(in crate::declare) fn split(file: &str) -> Vec<Piece<'_>> {
    let file = file.strip_prefix('\u{feff}').unwrap_or(file);
    let mut pieces = Vec::new();
    let (mut start, mut lines_before, mut trailing) = (0, 0, None);
    let (mut offset, mut lines) = (0, 0_u32);
    for line in file.split_inclusive('\n') {
        let next = offset + line.len();
        lines = lines.saturating_add(1);
        if let Some(rest) = separator(line) {
            pieces.push(Piece { lines_before, text: &file[start..offset], trailing });
            (start, lines_before) = (next, lines);
            trailing = (!rest.is_empty() && !rest.starts_with('#')).then_some(rest);
        }
        offset = next;
    }
    pieces.push(Piece { lines_before, text: &file[start..], trailing });
    pieces
}

/// What stands behind the `---` of a separator line, or none for another line.
fn separator(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("---")?;
    (rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])).then(|| rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(file: &str) -> Vec<(u32, &str)> {
        split(file).iter().filter(|p| !p.is_blank()).map(|p| (p.lines_before, p.text)).collect()
    }

    #[test]
    fn documents_keep_the_line_they_began_at() {
        assert_eq!(
            texts("a: 1\n---\nb: 2\n---\n\n---   # note\nc: 3"),
            [(0, "a: 1\n"), (2, "b: 2\n"), (6, "c: 3")]
        );
        assert_eq!(texts("\u{feff}---\r\na: 1\r\n---\r\nb: 2\r\n"), [(1, "a: 1\r\n"), (3, "b: 2\r\n")]);
        assert_eq!(texts("%YAML 1.1\n---\na: 1\n...\n"), [(2, "a: 1\n...\n")]);
    }

    #[test]
    fn only_three_dashes_that_stand_alone_separate() {
        assert_eq!(texts("----\n---a\n --- \n- --- b\n").len(), 1);
        assert_eq!(split("--- {a: 1}\n")[1].trailing, Some("{a: 1}"));
        assert!(texts("").is_empty() && texts("---\n---\n# x\n").is_empty());
    }
}
