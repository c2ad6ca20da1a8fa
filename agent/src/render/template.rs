//! Manifests as templates: Jinja as minijinja has it, bounded, without any file or network access.
//!
//! A template sees `values` (of the service), `cluster.name` and `cluster.labels`. Nothing is escaped,
//! because YAML is no HTML: what may hold a colon or a quote goes through `tojson` or `to_yaml`.
//! What is not defined is an error, and so is an `include`.

use std::io::{self, Write};

use farshore_shared::names::{Labels, Name};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, context};
use serde_json::{Map, Value};

use super::yaml;

/// The most bytes that one template may become.
pub const OUTPUT_LIMIT: usize = 4 << 20;
/// The most steps that one template may take.
pub const STEP_LIMIT: u64 = 1_000_000;
/// The most bytes of one template.
pub const SOURCE_LIMIT: usize = 1 << 20;

/// What every template of one service sees.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The service's values.
    pub values: &'a Map<String, Value>,
    /// This site's name.
    pub cluster: &'a Name,
    /// This site's labels.
    pub labels: &'a Labels,
}

/// Why a template gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// Not UTF-8.
    #[error("template is not UTF-8 text")]
    Encoding(#[from] std::str::Utf8Error),
    /// More than it may be.
    #[error("template has {0} bytes, limit {SOURCE_LIMIT}")]
    Source(usize),
    /// More than it may become.
    #[error("template writes more than {OUTPUT_LIMIT} bytes")]
    Output,
    /// More steps than it may take.
    #[error("template takes more than {STEP_LIMIT} steps")]
    Steps,
    /// What minijinja says.
    #[error("line {line}: {message}")]
    Jinja {
        /// Counted from 1; 0 where it is not known.
        line: usize,
        /// The kind of error and its detail.
        message: String,
    },
}

/// What one template becomes.
///
/// # Errors
/// [`TemplateError`], with the line in the template.
pub fn expand(source: &[u8], context: Context<'_>) -> Result<String, TemplateError> {
    if source.len() > SOURCE_LIMIT {
        return Err(TemplateError::Source(source.len()));
    }
    let source = std::str::from_utf8(source)?;
    let environment = environment();
    let template = environment.template_from_str(source).map_err(|error| explain(&error))?;
    let labels: Map<String, Value> = (context.labels.iter())
        .map(|(key, value)| (key.as_str().to_owned(), value.as_str().into()))
        .collect();
    let seen = context! {
        values => minijinja::Value::from(Serde(context.values)),
        cluster => context! {
            name => context.cluster.as_str(),
            labels => minijinja::Value::from(Serde(labels)),
        },
    };
    let mut out = Bounded::default();
    match template.render_captured_to(seen, &mut out) {
        Ok(_) => String::from_utf8(out.bytes).map_err(|error| error.utf8_error().into()),
        Err(_) if out.full => Err(TemplateError::Output),
        Err(error) => Err(explain(&error)),
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the default ones"));
    environment.set_recursion_limit(100);
    environment.set_fuel(Some(STEP_LIMIT));
    environment.add_filter("to_yaml", to_yaml);
    environment
}

/// `{{ values.map | to_yaml(4) }}`: block YAML whose lines after the first are indented by so much.
fn to_yaml(value: minijinja::Value, indent: Option<usize>) -> Result<String, Error> {
    let wrong = |error| Error::new(ErrorKind::BadSerialization, "to_yaml").with_source(error);
    let indent = indent.unwrap_or(0);
    if indent > 100 {
        return Err(Error::new(ErrorKind::InvalidOperation, "to_yaml indents by at most 100"));
    }
    let value = serde_json::to_value(value).map_err(wrong)?;
    let text = yaml::write(&value);
    Ok(text.trim_end_matches('\n').replace('\n', &format!("\n{}", " ".repeat(indent))))
}

fn explain(error: &Error) -> TemplateError {
    if error.kind() == ErrorKind::OutOfFuel {
        return TemplateError::Steps;
    }
    let mut message = error.kind().to_string();
    if let Some(detail) = error.detail() {
        message = format!("{message} ({detail})");
    }
    TemplateError::Jinja { line: error.line().unwrap_or(0), message }
}

/// Takes no more than the limit.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT_LIMIT {
            self.full = true;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
