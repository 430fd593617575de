//! Watch and notify.

use crate::out::say;
use super::said;
use crate::session::Session;
use anyhow::{Result, bail};
use bytes::Bytes;
use client::{IoCtx, WatchEvent};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// Prints notifications and answers them with nothing, until a line or the end of standard input.
pub fn watch(session: &Session, io: &IoCtx, object: &str) -> Result<()> {
    let mut watch = said(session.block_on(io.watch(object.as_bytes(), 0)), "watching", object)?;
    say!("press enter to exit...");
    let over = Arc::new(AtomicBool::new(false));
    let (flag, waiting) = (over.clone(), std::thread::current());
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        flag.store(true, Ordering::Release);
        waiting.unpark();
    });
    loop {
        let event = {
            let mut next = pin!(watch.next());
            let or_over = poll_fn(|cx| match next.as_mut().poll(cx) {
                Poll::Pending if over.load(Ordering::Acquire) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
                Poll::Ready(event) => Poll::Ready(event),
            });
            session.block_on(or_over)
        };
        match event {
            Some(WatchEvent::Notified { notify_id, notifier, payload }) => {
                say!("NOTIFY cookie {} notify_id {notify_id} from {notifier}", watch.cookie());
                say!("{}", payload.escape_ascii());
                said(watch.ack(notify_id, Bytes::new()), "answering on", object)?;
            }
            Some(WatchEvent::Failed { errno }) => bail!("watch on {object}: {errno}"),
            Some(_) => {}
            None => return said(session.block_on(watch.unwatch()), "ending the watch on", object),
        }
    }
}

pub async fn notify(io: &IoCtx, object: &str, message: &str, timeout_s: u32) -> Result<()> {
    // The stock command sends an encoded string.
    let payload = denc::to_bytes(message, 0);
    match said(io.notify(object.as_bytes(), payload, timeout_s).await, "notifying", object)? {
        WatchEvent::NotifyDone { result, replies, timeouts } => {
            for (gid, cookie, reply) in replies {
                say!("reply client.{gid} cookie {cookie} : {} bytes", reply.len());
                if !reply.is_empty() {
                    say!("{}", reply.escape_ascii());
                }
            }
            for (gid, cookie) in timeouts {
                say!("timeout client.{gid} cookie {cookie}");
            }
            match result {
                0.. => Ok(()),
                _ => bail!("error notifying {object}: {}", types::Errno(-result)),
            }
        }
        other => bail!("error notifying {object}: {other:?}"),
    }
}

pub async fn list(io: &IoCtx, object: &str) -> Result<()> {
    for w in said(io.watchers(object.as_bytes()).await, "listing watchers of", object)? {
        say!("watcher={} {} cookie={}", w.addr, w.name, w.cookie);
    }
    Ok(())
}
