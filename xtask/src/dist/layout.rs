//! Which functions of a program lie together.
//!
//! The pages of a program that were ever touched are its memory, and the kernel brings them in sixteen at a time (fault
//! around). Of the agent's functions a third ever runs, and they would lie among the others all over it. So the linker is
//! told to put first what runs at a site: what [`learn`](mod@super::learn) saw running, in `agent/hot.txt`. A function that is
//! not in the list, for it is new or was renamed, lies with those that never run, and works as well.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::command;
use crate::error::ChoreError;

/// The name of a function without what differs from build to build, as the list has it: the hash at the end of Rust's
/// mangled names, and the number that the link-time optimiser gives to what it copied or made local.
pub(super) fn key(symbol: &str) -> &str {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let symbol = match symbol.rsplit_once('.') {
        Some((name, number)) if is_number(number) => name.strip_suffix(".llvm").unwrap_or(name),
        _ => symbol,
    };
    // `17h`, sixteen digits, `E`.
    let Some(at) = symbol.len().checked_sub(20) else { return symbol };
    match symbol.split_at_checked(at) {
        Some((name, hash)) if hash.starts_with("17h") && hash.ends_with('E') => name,
        _ => symbol,
    }
}

/// The functions of a program, as the linker calls them.
pub(super) fn functions(program: &Path) -> Result<BTreeSet<String>, ChoreError> {
    let listed = command::output(Command::new("nm").arg("--defined-only").arg(program))?;
    let text = listed.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_code = words.next()?.eq_ignore_ascii_case("t");
        words.next().filter(|_name| is_code).map(str::to_owned)
    });
    Ok(text.collect())
}

/// What the linker is to put first: a file for `--symbol-ordering-file`.
pub(super) fn order(functions: &BTreeSet<String>, hot: &str) -> String {
    let hot: BTreeSet<&str> = hot.lines().collect();
    functions
        .iter()
        .filter(|symbol| hot.contains(key(symbol)))
        .flat_map(|symbol| [symbol.as_str(), "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_known_by_its_name_whatever_its_hash_is() {
        for (symbol, name) in [
            ("_ZN2h25hpack5table5Table8converge17he4ee2e9bac6c52f0E", "_ZN2h25hpack5table5Table8converge"),
            ("_ZN2h25codec3new17he4ee2e9bac6c52f0E.llvm.123456", "_ZN2h25codec3new"),
            ("_ZN2h25codec3new17he4ee2e9bac6c52f0E.8059", "_ZN2h25codec3new"),
            ("sha256", "sha256"),
            ("ZSTD_compress", "ZSTD_compress"),
            ("malloc", "malloc"),
            ("a_name_with_twenty_letters_E", "a_name_with_twenty_letters_E"),
        ] {
            assert_eq!(key(symbol), name);
        }
    }

    #[test]
    fn what_runs_comes_first_and_what_the_program_does_not_have_is_left_out() {
        let functions =
            ["_ZN1a17h0000000000000000E", "_ZN1a17h1111111111111111E", "_ZN1b17h0000000000000000E"];
        let functions = functions.map(str::to_owned).into();
        let first = "_ZN1a17h0000000000000000E\n_ZN1a17h1111111111111111E\n";
        assert_eq!(order(&functions, "_ZN1a\n_ZN1c\n"), first);
        assert_eq!(order(&functions, ""), "");
    }
}
