//! What can be wrong with an edit.

/// Why an edit was refused. Texts are those a stock monitor prints where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrushError {
    /// An item, by name or number.
    #[error("item {0} does not exist")]
    NoItem(String),
    /// An item that is not where it was said to be.
    #[error("item {0} is not there")]
    NotThere(String),
    #[error("'{0}' already exists")]
    ItemExists(String),
    #[error("'{0}' does not match [-_.0-9a-zA-Z]+")]
    BadName(String),
    /// A bucket was wanted.
    #[error("'{0}' is an OSD, not a bucket")]
    NotABucket(String),
    #[error("bucket {0} is not empty")]
    NotEmpty(i32),
    /// A rule takes the bucket, or it is a shadow of another.
    #[error("bucket {0} is in use by a rule or a device class")]
    InUse(i32),
    #[error("that would make a bucket contain itself")]
    Loop,
    #[error("item is beneath that bucket already")]
    AlreadyThere,
    #[error("no bucket type named {0}")]
    UnknownType(String),
    #[error("bucket {0} is of another type")]
    WrongType(String),
    /// No bucket type of the location names a place for the item.
    #[error("the location names no place for the item")]
    NoPlace,
    #[error("a weight out of range")]
    Weight,
    /// Not below zero, or beyond a million buckets.
    #[error("{0} is no bucket id")]
    BucketId(i32),
    /// `uniform` wants equal weights, `tree` at most 64 items.
    #[error("the bucket's algorithm cannot hold that")]
    Algorithm,
    #[error("rule {0} exists")]
    RuleExists(String),
    #[error("rule {0} does not exist")]
    NoRule(String),
    #[error("no room for another rule")]
    TooManyRules,
    #[error("root item {0} does not exist")]
    NoRoot(String),
    #[error("unknown type {0}")]
    UnknownFailureDomain(String),
    #[error("device class {0} does not exist")]
    NoClass(String),
    #[error("device class {0} already exists")]
    ClassExists(String),
    #[error("root {root} has no devices with class {class}")]
    NoDevicesOfClass { root: String, class: String },
    #[error(
        "osd.{osd} has already bound to class '{old}', can not reset class to '{new}'; \
         use 'ceph osd crush rm-device-class <id>' to remove old class first"
    )]
    ClassBound { osd: i32, old: String, new: String },
    #[error("no weight set {0}")]
    NoWeightSet(i64),
    #[error("weight set {0} exists")]
    WeightSetExists(i64),
}

impl CrushError {
    /// The negative errno a stock monitor answers with.
    pub fn errno(&self) -> i32 {
        use CrushError::*;
        match self {
            NoItem(_) | NotThere(_) | NoRule(_) | NoRoot(_) | NoWeightSet(_) => -2,
            InUse(_) | ClassBound { .. } => -16,
            ItemExists(_) | RuleExists(_) | ClassExists(_) | WeightSetExists(_) => -17,
            NotABucket(_) => -20,
            BadName(_) | AlreadyThere | UnknownType(_) | WrongType(_) | NoPlace | Algorithm => -22,
            UnknownFailureDomain(_) | NoClass(_) | NoDevicesOfClass { .. } => -22,
            TooManyRules => -28,
            Weight | BucketId(_) => -34,
            NotEmpty(_) => -39,
            Loop => -40,
        }
    }
}
