//! Placement: which OSDs hold which placement group, as a pure function of a map.
//!
//! Room: ground floor. Values in, values out; no clock, no chance, no I/O.
//! Owns: `CrushMap` (buckets, rules, names, device classes, weight sets), its binary and text forms, the mapping
//! function `CrushMap::do_rule`, and the edits an operator makes.
//! Holds: the same map, input and weights give the same OSDs as stock, bit for bit; a map decoded from a stranger's
//! bytes never makes the mapper panic or spin.
//! Upstream: src/crush/{crush.h,mapper.c,builder.c,hash.c,CrushWrapper.cc,CrushCompiler.cc}.
//! Tests: tests/ asks `crushtool` about thousands of random maps.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod bucket;
mod build;
mod class;
mod codec;
mod compile;
mod decompile;
mod draw;
mod dump;
mod edit;
mod error;
mod fits;
pub mod hash;
mod ln;
mod location;
mod map;
mod mapper;
mod rule;
mod shape;
mod tree;
mod tunables;
mod weight;

pub use bucket::{Alg, Bucket};
pub use codec::features;
pub use compile::{CompileError, CompileErrorKind};
pub use decompile::Decompiled;
pub use dump::float;
pub use error::CrushError;
pub use fits::RuleFit;
pub use location::{Location, is_valid_name, parse_location};
pub use map::{ChooseArg, ChooseArgs, CrushMap, Op, Rule, Step};
pub use rule::{RuleKind, SimpleRule};
pub use shape::ShapeError;
pub use tree::TreeNode;
pub use tunables::{Profile, Tunables};

/// No OSD at this position of a mapping (`CRUSH_ITEM_NONE`).
pub const ITEM_NONE: i32 = 0x7fff_ffff;
/// A weight of 1.0 in the 16.16 fixed point that all weights use.
pub const ONE: u32 = 0x1_0000;
/// The weight set used when a pool has none of its own (`CrushWrapper::DEFAULT_CHOOSE_ARGS`).
pub const COMPAT_WEIGHT_SET: i64 = -1;
/// Rules are numbered below this (`CRUSH_MAX_RULES`).
pub const MAX_RULES: usize = 256;
