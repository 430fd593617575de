//! What commands print: tables and JSON, column for column as stock prints them.

pub mod config;
pub mod iostat;
pub mod osd_df;
pub mod pg_json;
pub mod pg_text;
pub mod pools;
