//! Class `hello`: upstream's worked example; kept whole because clients' test suites exercise it.
//!
//! Upstream: src/cls/hello/.

use super::{Call, Class, Method, MethodResult, RD, WR};
use bytes::Bytes;
use types::Errno;

const INPUT_MAX: usize = 100;
const REPLAY_MAX: u64 = 1100;

pub(super) const CLASS: Class = Class {
    name: "hello",
    methods: &[
        Method { name: "say_hello", flags: RD, run: say_hello },
        Method { name: "record_hello", flags: WR, run: record_hello },
        Method { name: "write_return_data", flags: WR, run: write_return_data },
        Method { name: "writes_dont_return_data", flags: WR, run: write_return_data },
        Method { name: "write_too_much_return_data", flags: WR, run: write_too_much_return_data },
        Method { name: "replay", flags: RD, run: replay },
        Method { name: "turn_it_to_11", flags: RD | WR, run: turn_it_to_11 },
        Method { name: "bad_reader", flags: WR, run: bad_reader },
        Method { name: "bad_writer", flags: RD, run: bad_writer },
    ],
};

fn greeting(input: &[u8]) -> Result<Vec<u8>, Errno> {
    match input {
        [] => Ok(b"Hello, world!".to_vec()),
        name if name.len() <= INPUT_MAX => Ok([b"Hello, ", name, b"!"].concat()),
        _ => Err(Errno::EINVAL),
    }
}

fn say_hello(_: &mut Call<'_, '_>, input: &[u8], out: &mut Vec<u8>) -> MethodResult {
    out.extend(greeting(input)?);
    Ok(0)
}

/// Greets only objects that do not exist yet, and notes who did it.
fn record_hello(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let text = greeting(input)?;
    if call.stat().is_ok() {
        return Err(Errno::EEXIST.into());
    }
    call.write_full(text.into())?;
    sign(call, b"said_by")
}

fn write_return_data(call: &mut Call<'_, '_>, input: &[u8], out: &mut Vec<u8>) -> MethodResult {
    call.setxattr(b"foo", Bytes::from_static(b"bar"))?;
    if !input.is_empty() {
        out.extend_from_slice(b"too much input data!");
        return Err(Errno::EINVAL.into());
    }
    out.extend_from_slice(b"you might see this");
    Ok(42)
}

/// More output than a write may return.
fn write_too_much_return_data(call: &mut Call<'_, '_>, _: &[u8], out: &mut Vec<u8>) -> MethodResult {
    call.setxattr(b"foo", Bytes::from_static(b"bar"))?;
    out.extend(b"you should not see this because it is toooooo long. ".repeat(10));
    Ok(42)
}

fn replay(call: &mut Call<'_, '_>, _: &[u8], out: &mut Vec<u8>) -> MethodResult {
    out.extend_from_slice(&call.read(0, REPLAY_MAX)?);
    Ok(0)
}

fn turn_it_to_11(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    if !input.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let loud = call.read(0, REPLAY_MAX)?.to_ascii_uppercase();
    call.write_full(loud.into())?;
    sign(call, b"amplified_by")
}

/// Reads without being registered as a reader.
fn bad_reader(call: &mut Call<'_, '_>, _: &[u8], out: &mut Vec<u8>) -> MethodResult {
    out.extend_from_slice(&call.read(0, 100)?);
    Ok(0)
}

/// Writes without being registered as a writer.
fn bad_writer(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    call.write_full(Bytes::copy_from_slice(input))?;
    Ok(0)
}

fn sign(call: &mut Call<'_, '_>, attr: &[u8]) -> MethodResult {
    let who = call.origin();
    let text = format!("{} {}", who.inst, who.addr);
    call.setxattr(attr, text.into())?;
    Ok(0)
}
