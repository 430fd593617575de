//! Histograms over two axes, as `perf histogram dump` prints them: how long requests took, and how large they were.
//!
//! Upstream: src/common/perf_histogram.{h,cc}; the axes are those of `op_latency` in src/osd/osd_perf_counters.cc.

use crate::json::JsonWriter;

const BUCKETS: usize = 32;

/// One axis: its first bucket is for what is below 0, each further one twice as wide as those before.
struct Axis {
    name: &'static str,
    /// Width of the first bucket that has one.
    quant: u64,
}

/// Upstream calls them microseconds and counts nanoseconds.
const LATENCY: Axis = Axis { name: "Latency (usec)", quant: 100_000 };
const SIZE: Axis = Axis { name: "Request size (bytes)", quant: 512 };

impl Axis {
    fn bucket(&self, value: u64) -> usize {
        let doublings = u64::BITS - (value / self.quant).leading_zeros();
        (1 + doublings as usize).min(BUCKETS - 1)
    }

    /// From where a bucket counts.
    fn from(&self, bucket: usize) -> u64 {
        if bucket < 2 { 0 } else { self.quant << (bucket - 2) }
    }

    fn dump(&self, w: &mut JsonWriter) {
        w.object("").string("name", self.name).raw("min", "0").raw("quant_size", &self.quant.to_string());
        w.raw("buckets", &BUCKETS.to_string()).string("scale_type", "log2").array("ranges");
        for bucket in 0..BUCKETS {
            w.object("");
            if bucket > 0 {
                w.raw("min", &self.from(bucket).to_string());
            }
            if bucket == 0 {
                w.raw("max", "-1");
            } else if bucket + 1 < BUCKETS {
                w.raw("max", &(self.from(bucket + 1) - 1).to_string());
            }
            w.end();
        }
        w.end().end();
    }
}

/// A histogram of latency and size.
#[derive(Debug, Clone)]
pub struct Histogram {
    pub(super) name: &'static str,
    description: &'static str,
    /// By latency, then by size.
    cells: Vec<u64>,
}

impl Histogram {
    /// An empty one.
    pub fn new(name: &'static str, description: &'static str) -> Self {
        Histogram { name, description, cells: vec![0; BUCKETS * BUCKETS] }
    }

    /// Counts a request that took so many nanoseconds and moved so many bytes.
    pub fn add(&mut self, latency_ns: u64, bytes: u64) {
        let at = LATENCY.bucket(latency_ns) * BUCKETS + SIZE.bucket(bytes);
        if let Some(cell) = self.cells.get_mut(at) {
            *cell += 1;
        }
    }

    pub(super) fn reset(&mut self) {
        self.cells.fill(0);
    }

    pub(super) fn dump(&self, w: &mut JsonWriter) {
        w.object(self.name).array("axes");
        LATENCY.dump(w);
        SIZE.dump(w);
        w.end().array("values");
        for row in self.cells.chunks(BUCKETS) {
            w.array("");
            for n in row {
                w.raw("", &n.to_string());
            }
            w.end();
        }
        w.end().end();
    }

    pub(super) fn schema(&self, w: &mut JsonWriter) {
        // A count of integers: 2 | 8 | 16.
        w.object(self.name).raw("type", "26").string("metric_type", "counter").string("value_type", "integer-2d-histogram");
        w.string("description", self.description).string("nick", "").raw("priority", "5").string("units", "none").end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_upstream_s() {
        let at = |n| LATENCY.bucket(n);
        assert_eq!([0, 99_999, 100_000, 199_999, 200_000, 399_999, 400_000].map(at), [1, 1, 2, 2, 3, 3, 4]);
        assert_eq!((LATENCY.from(30), LATENCY.from(31)), (26_843_545_600_000, 53_687_091_200_000), "as stock prints them");
        assert_eq!((at(53_687_091_199_999), at(53_687_091_200_000), at(u64::MAX)), (30, 31, 31));
        assert_eq!([0, 511, 512, 1023, 1024, 4096].map(|n| SIZE.bucket(n)), [1, 1, 2, 2, 3, 5]);
    }

    #[test]
    fn a_request_is_counted_where_its_latency_and_its_size_meet() {
        let mut h = Histogram::new("h", "of what");
        h.add(150_000, 4096);
        let mut w = JsonWriter::new(false);
        w.object("");
        h.dump(&mut w);
        w.end();
        let shown: serde_json::Value = serde_json::from_str(&w.finish()).unwrap();
        let h = &shown["h"];
        assert_eq!(h["values"][2][5], 1);
        assert_eq!((h["values"].as_array().unwrap().len(), h["values"][0].as_array().unwrap().len()), (32, 32));
        assert_eq!(h["axes"][0]["ranges"][0], serde_json::json!({"max": -1}));
        assert_eq!(h["axes"][1]["ranges"][2], serde_json::json!({"min": 512, "max": 1023}));
        assert_eq!(h["axes"][0]["ranges"][31], serde_json::json!({"min": 53_687_091_200_000_u64}));
    }
}
