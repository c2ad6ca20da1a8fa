//! The page for people. Pure: it is the text of `farshore agent status`, with what came from elsewhere made harmless.

use farshore_shared::wire::UnixSeconds;

use crate::local::text;
use crate::local::view::View;

/// The page.
#[must_use]
pub fn page(view: &View, now: UnixSeconds) -> String {
    let name = view.cluster.as_ref().map_or("site", |name| name.as_str());
    let body = escaped(&text::page(view, now));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{} - Farshore</title>\n\
         <meta http-equiv=\"refresh\" content=\"10\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <style>body{{font:14px/1.5 ui-monospace,monospace;margin:2em;color-scheme:light dark}}pre{{white-space:pre-wrap}}</style>\n\
         </head><body><pre>{body}</pre></body></html>\n",
        escaped(name)
    )
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Snapshot;
    use crate::local::keeper::Known;
    use crate::local::keeper::tests::snapshot;
    use crate::local::view;
    use std::sync::Arc;

    #[test]
    fn what_came_from_elsewhere_is_text_and_no_markup() {
        let mut bad = snapshot();
        bad.services[0].message = "<script>alert('x')</script>\u{1b}[2J".into();
        let bad = Snapshot { alarms: vec!["a & b".into()], ..bad };
        let folder = tempfile::tempdir().expect("a folder");
        let known = Known { snapshot: Some(Arc::new(bad)), ..Known::default() };
        let html = page(&view::of_known(folder.path(), &known), 1_800_000_000);
        assert!(!html.contains("<script") && !html.contains('\u{1b}'), "{html}");
        assert!(html.contains("&lt;script&gt;alert(&#39;x&#39;)") && html.contains("a &amp; b"), "{html}");
    }
}
