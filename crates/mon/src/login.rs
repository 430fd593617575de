//! Authentication of connections, and its renewals on open sessions.

use crate::mon::{Effect, Mon};
use crate::session::SessionId;
use auth::cephx::{MonAuth, Reply};
use auth::{method, mode};
use bytes::Bytes;
use denc::BString;
use store::Kv;
use types::msg::RawMessage;
use types::msg::mon::{MAuth, MAuthReply};
use types::{Errno, Now};

impl<K: Kv> Mon<K> {
    /// What sessions may be (`ms_mon_service_mode`).
    pub fn service_modes(&self) -> Vec<u32> {
        let text = self.state.as_ref().and_then(|state| self.env.option(state, "ms_mon_service_mode")).unwrap_or_default();
        mode::parse(&text).ok().filter(|modes| !modes.is_empty()).unwrap_or_else(|| vec![mode::SECURE, mode::CRC])
    }

    /// Answers one step. The peer's first choice of the modes we speak is taken.
    pub(crate) fn answer_auth(&mut self, now: Now, session: SessionId, method: u32, modes: &[u32], payload: &Bytes) {
        let effect = match self.auth_step(now, session, method, modes, payload) {
            Ok(effect) => effect,
            Err(errno) => {
                self.auths.remove(&session);
                Effect::AuthBad { session, method, errno }
            }
        };
        self.after_changes(effect);
    }

    fn auth_step(&mut self, now: Now, session: SessionId, how: u32, modes: &[u32], payload: &Bytes) -> Result<Effect, Errno> {
        if how != method::CEPHX {
            return Err(Errno::EOPNOTSUPP);
        }
        let allowed = self.service_modes();
        let mode = modes.iter().copied().find(|m| allowed.contains(m)).ok_or(Errno::EOPNOTSUPP)?;
        let state = self.state.as_mut().ok_or(Errno::EAGAIN)?;
        let Some(auth) = self.auths.get_mut(&session) else {
            state.auth.reserve_ids(&mut self.txn);
            let (auth, payload) = MonAuth::begin(payload, || state.auth.allocate_id(), &mut self.rng)?;
            self.auths.insert(session, auth);
            return Ok(Effect::AuthMore { session, payload });
        };
        let policy = state.auth.policy;
        match auth.proceed(payload, mode, &state.auth, &policy, now.wall, &mut self.rng) {
            Reply::More(payload) => Ok(Effect::AuthMore { session, payload }),
            Reply::Bad(errno) => Err(errno),
            Reply::Done(granted) => {
                self.proven.insert(session, granted.clone());
                Ok(Effect::AuthDone { session, mode, granted })
            }
        }
    }

    /// A renewal: fresh tickets, or a daemon's rotating secrets.
    pub(crate) fn handle_auth_message(&mut self, now: Now, session: SessionId, raw: &RawMessage, message: &MAuth) {
        let (Some(state), Some(auth)) = (&self.state, self.auths.get_mut(&session)) else { return };
        let policy = state.auth.policy;
        let answer = auth.handle_message(&message.payload, &state.auth, &policy, now.wall, &mut self.rng);
        let global_id = auth.global_id();
        let reply = |result, payload| MAuthReply { protocol: method::CEPHX, result, global_id, payload, text: BString::default() };
        let reply = match answer {
            Ok(payload) => reply(0, payload),
            Err(errno) => reply(errno.wire(), Bytes::new()),
        };
        self.send(session, raw.tid, reply);
    }
}
