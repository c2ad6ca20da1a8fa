//! Tables for people: aligned columns, the state in colour.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

/// The widest cell, in characters: what is longer is cut.
const CELL_LIMIT: usize = 300;
const GAP: &str = "  ";

/// How a cell is to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As any text.
    Plain,
    /// As it should be.
    Good,
    /// On its way, or to be looked at.
    Wait,
    /// Not as it should be.
    Bad,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Wait => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
        }
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Text in a tone. What came from a site or a repository may hold control characters, with which a
    /// terminal can be commanded: they become spaces.
    pub(crate) fn toned(text: &str, tone: Tone) -> Self {
        let shown = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut text: String = shown.clone().take(CELL_LIMIT).collect();
        if shown.count() > CELL_LIMIT {
            text.push('…');
        }
        let text = if text.is_empty() { "-".to_owned() } else { text };
        Self { text, tone }
    }

    /// Text as any.
    pub(crate) fn plain(text: &str) -> Self {
        Self::toned(text, Tone::Plain)
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// Writes a header and rows of as many cells, each column as wide as its widest cell.
///
/// # Errors
/// What the writer meets.
pub(crate) fn write<const N: usize>(
    out: &mut dyn Write,
    header: [&str; N],
    rows: &[[Cell; N]],
) -> io::Result<()> {
    let header = header.map(Cell::plain);
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().chain([&header]).map(|row| row[column].width()).max().unwrap_or_default()
    });
    for row in [&header].into_iter().chain(rows) {
        for (column, cell) in row.iter().enumerate() {
            let (style, text) = (cell.tone.style(), &cell.text);
            write!(out, "{style}{text}{style:#}")?;
            if column + 1 < N {
                write!(out, "{:1$}{GAP}", "", widths[column] - cell.width())?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<const N: usize>(header: [&str; N], rows: &[[Cell; N]]) -> String {
        let mut out = Vec::new();
        write(&mut out, header, rows).expect("memory takes it");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_whatever_their_colour() {
        let rows = [
            [Cell::plain("shop-7"), Cell::toned("ok", Tone::Plain), Cell::plain("")],
            [Cell::plain("s"), Cell::plain("converging"), Cell::plain("x")],
        ];
        let expected = "NAME    STATE       MESSAGE\nshop-7  ok          -\ns       converging  x\n";
        assert_eq!(shown(["NAME", "STATE", "MESSAGE"], &rows), expected);
        let coloured = shown(["STATE", "M"], &[[Cell::toned("ok", Tone::Good), Cell::plain("x")]]);
        assert_eq!(coloured, "STATE  M\n\u{1b}[32mok\u{1b}[0m     x\n");
    }

    #[test]
    fn a_cell_commands_no_terminal_and_has_an_end() {
        assert_eq!(Cell::plain("a\u{1b}[2Jb\nc").text, "a [2Jb c");
        assert_eq!(Cell::plain(&"x".repeat(5000)).width(), CELL_LIMIT + 1);
    }
}
