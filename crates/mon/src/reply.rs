//! The answer to a command: a result, a sentence for standard error, bytes for standard output.

use bytes::Bytes;
use serde_json::Value;
use types::Errno;

/// The form a client asked for its output in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Plain,
    Json,
    JsonPretty,
}

impl Format {
    /// The form named `name`; names of forms that are not spoken here (xml, html) give plain text, as an unknown
    /// name does upstream.
    pub fn from_name(name: &str) -> Self {
        match name {
            "json" => Format::Json,
            "json-pretty" => Format::JsonPretty,
            _ => Format::Plain,
        }
    }
}

/// What a command answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// 0 or a negative errno.
    pub result: i32,
    /// For standard error.
    pub status: String,
    /// For standard output.
    pub data: Bytes,
}

/// A command's end; both sides are answered, the right one by `?`.
pub type Outcome = Result<Reply, Reply>;

impl Reply {
    /// Done, and nothing to say.
    pub fn ok() -> Self {
        Reply::default()
    }

    /// Done, with a sentence.
    pub fn status(status: impl Into<String>) -> Self {
        Reply { status: status.into(), ..Reply::default() }
    }

    /// Output.
    pub fn text(data: impl Into<Bytes>) -> Self {
        Reply { data: data.into(), ..Reply::default() }
    }

    /// Refused.
    pub fn err(errno: Errno, status: impl Into<String>) -> Self {
        Reply { result: errno.wire(), status: status.into(), ..Reply::default() }
    }

    /// Structured output; plain means pretty JSON, as for all commands that have no text form.
    pub fn json(format: Format, value: &Value) -> Self {
        Reply::text(render_json(format, value))
    }

    /// Text when plain was asked for, else `value`.
    pub fn either(format: Format, text: impl FnOnce() -> String, value: impl FnOnce() -> Value) -> Self {
        match format {
            Format::Plain => Reply::text(text()),
            _ => Reply::json(format, &value()),
        }
    }
}

/// JSON text with a line end; indented by four unless compact was asked for.
pub fn render_json(format: Format, value: &Value) -> String {
    match format {
        Format::Json => admin::json::compact(value) + "\n",
        _ => admin::json::pretty(value),
    }
}
