//! Health: checks by code, their gravity, and the three shapes they are shown in.
//!
//! Codes are upstream's where the trouble is the same; a trouble of ours alone has a code of its own.
//! Upstream: src/mon/health_check.h, doc/rados/operations/health-checks.rst.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use types::msg::internal::HealthReport;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Severity {
    #[default]
    Ok,
    Warn,
    Err,
}

impl Severity {
    /// `WRN`, `ERR`, `OK`, as `health detail` marks lines.
    fn short(self) -> &'static str {
        match self {
            Severity::Ok => "OK",
            Severity::Warn => "WRN",
            Severity::Err => "ERR",
        }
    }
}
impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Ok => "HEALTH_OK",
            Severity::Warn => "HEALTH_WARN",
            Severity::Err => "HEALTH_ERR",
        })
    }
}

/// One trouble (`health_check_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthCheck {
    pub severity: Severity,
    pub summary: String,
    /// How many things it concerns: a muted check comes back when this grows.
    pub count: i64,
    pub detail: Vec<String>,
}

/// A check that was silenced (`health_mute_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mute {
    pub summary: String,
    pub count: i64,
    /// It stays silenced even when it goes away and returns.
    pub sticky: bool,
    /// When it ends, as a moment's text.
    pub ttl: Option<String>,
}

/// All checks of the cluster, by code (`health_check_map_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthMap {
    pub checks: BTreeMap<String, HealthCheck>,
    pub mutes: BTreeMap<String, Mute>,
}

impl HealthMap {
    /// Adds or replaces a check.
    pub fn add(&mut self, code: &str, severity: Severity, summary: impl Into<String>, count: i64, detail: Vec<String>) {
        self.checks.insert(code.into(), HealthCheck { severity, summary: summary.into(), count, detail });
    }

    /// Adds checks as a manager reports them.
    pub fn merge(&mut self, reports: &[HealthReport]) {
        for r in reports {
            let severity = if r.severity >= 2 { Severity::Err } else { Severity::Warn };
            self.add(&r.code, severity, r.summary.clone(), r.count, r.detail.clone());
        }
    }

    /// The checks in the form in which they travel.
    pub fn reports(&self) -> Vec<HealthReport> {
        let report = |(code, c): (&String, &HealthCheck)| HealthReport {
            code: code.clone(),
            severity: c.severity as u8,
            summary: c.summary.clone(),
            count: c.count,
            detail: c.detail.clone(),
        };
        self.checks.iter().map(report).collect()
    }

    /// The worst of what is not muted.
    pub fn status(&self) -> Severity {
        self.loud().map(|(_, c)| c.severity).max().unwrap_or_default()
    }

    /// `ceph health`: one line; with `detail`, every check and its particulars. No line end after the last one.
    pub fn text(&self, detail: bool) -> String {
        let mut out = self.status().to_string();
        let summaries: Vec<&str> = self.by_gravity().map(|(_, c)| c.summary.as_str()).collect();
        if !summaries.is_empty() {
            out.push_str(&format!(" {}", summaries.join("; ")));
        }
        let muted: Vec<&str> = self.muted().map(|(code, _)| code.as_str()).collect();
        if !muted.is_empty() {
            out.push_str(&format!("{} (muted: {})", if summaries.is_empty() { "" } else { ";" }, muted.join(" ")));
        }
        if detail {
            let quiet = self.muted().map(|(code, check)| (code, check, "(MUTED) "));
            for (code, check, mark) in self.by_gravity().map(|(code, check)| (code, check, "")).chain(quiet) {
                out.push_str(&format!("\n{mark}[{}] {code}: {}", check.severity.short(), check.summary));
                check.detail.iter().for_each(|line| out.push_str(&format!("\n    {line}")));
            }
        }
        out
    }

    /// Lines of the health section of `ceph -s`: the status, then summaries to be indented under it.
    pub fn status_lines(&self) -> Vec<String> {
        let mut lines = vec![self.status().to_string()];
        lines.extend(self.by_gravity().map(|(_, c)| c.summary.clone()));
        let muted: Vec<&str> = self.muted().map(|(code, _)| code.as_str()).collect();
        if !muted.is_empty() {
            lines.push(format!("(muted: {})", muted.join(" ")));
        }
        lines
    }

    /// `ceph health -f json`, and the `health` member of `status`.
    pub fn json(&self, detail: bool) -> Value {
        let check = |(code, c): (&String, &HealthCheck)| {
            let mut out = json!({
                "severity": c.severity.to_string(),
                "summary": {"message": c.summary, "count": c.count},
            });
            if detail {
                out["detail"] = c.detail.iter().map(|line| json!({"message": line})).collect();
            }
            out["muted"] = self.mutes.contains_key(code).into();
            (code.clone(), out)
        };
        let mute = |(code, m): (&String, &Mute)| {
            let mut out = json!({"code": code});
            if let Some(ttl) = &m.ttl {
                out["ttl"] = ttl.as_str().into();
            }
            out["sticky"] = m.sticky.into();
            out["summary"] = m.summary.as_str().into();
            out["count"] = m.count.into();
            out
        };
        json!({
            "status": self.status().to_string(),
            "checks": self.checks.iter().map(check).collect::<Map<_, _>>(),
            "mutes": self.mutes.iter().map(mute).collect::<Vec<_>>(),
        })
    }

    fn loud(&self) -> impl Iterator<Item = (&String, &HealthCheck)> {
        self.checks.iter().filter(|(code, _)| !self.mutes.contains_key(*code))
    }

    fn muted(&self) -> impl Iterator<Item = (&String, &HealthCheck)> {
        self.checks.iter().filter(|(code, _)| self.mutes.contains_key(*code))
    }

    /// Errors before warnings, by code within.
    fn by_gravity(&self) -> impl Iterator<Item = (&String, &HealthCheck)> {
        let of = |severity| self.loud().filter(move |(_, c)| c.severity == severity);
        of(Severity::Err).chain(of(Severity::Warn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> HealthMap {
        let mut map = HealthMap::default();
        map.add("MON_DISK_LOW", Severity::Warn, "mon a is low on available space", 1, vec!["mon.a has 27% avail".into()]);
        map.add("OSD_FULL", Severity::Err, "1 full osd(s)", 1, vec!["osd.0 is full".into()]);
        map
    }

    #[test]
    fn nothing_wrong_is_one_word() {
        assert_eq!(HealthMap::default().text(true), "HEALTH_OK");
        let wanted = r#"{"status":"HEALTH_OK","checks":{},"mutes":[]}"#;
        assert_eq!(crate::json::compact(&HealthMap::default().json(false)), wanted);
    }

    #[test]
    fn errors_come_before_warnings() {
        assert_eq!(two().text(false), "HEALTH_ERR 1 full osd(s); mon a is low on available space");
        let wanted = "HEALTH_ERR 1 full osd(s); mon a is low on available space\n\
                      [ERR] OSD_FULL: 1 full osd(s)\n    osd.0 is full\n\
                      [WRN] MON_DISK_LOW: mon a is low on available space\n    mon.a has 27% avail";
        assert_eq!(two().text(true), wanted);
    }

    #[test]
    fn a_muted_check_does_not_count() {
        let mut map = two();
        map.mutes.insert("OSD_FULL".into(), Mute::default());
        assert_eq!(map.status(), Severity::Warn);
        assert_eq!(map.text(false), "HEALTH_WARN mon a is low on available space; (muted: OSD_FULL)");
        assert_eq!(map.json(true)["checks"]["OSD_FULL"]["muted"], true);
    }

    #[test]
    fn checks_survive_the_way_through_a_digest() {
        let mut copy = HealthMap::default();
        copy.merge(&two().reports());
        assert_eq!(copy, two());
    }
}
