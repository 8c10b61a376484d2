//! fio straight on a file, and what it prints.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use guest_rig::Rig;

use super::process::output_on;
use super::sample::Sample;

/// What fio does, in blocks of 4 KiB.
pub(super) struct Job<'a> {
    /// `io_uring`, or `psync` for one at a time.
    pub(super) engine: &'a str,
    pub(super) rw: &'a str,
    pub(super) depth: u64,
    pub(super) seconds: u32,
}

/// Runs the job on `file`, past the page cache.
pub(super) fn measure(rig: &Rig, file: &Path, job: &Job<'_>, cpu: u32) -> Result<Sample> {
    let mut command = rig.guest_program("usr/bin/fio").command();
    command
        .args(["--name=bench", "--bs=4k", "--direct=1"])
        .arg(format!("--ioengine={}", job.engine))
        // from the submission on, as our own host counts
        .args(["--lat_percentiles=1", "--clat_percentiles=0"])
        .args([
            "--thread",
            "--time_based",
            "--randrepeat=0",
            "--norandommap",
        ])
        .args(["--output-format=terse", "--terse-version=3"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--rw={}", job.rw))
        .arg(format!("--iodepth={}", job.depth))
        .arg(format!("--runtime={}", job.seconds));
    parse(&output_on(cpu, &mut command, "")?)
}

/// Fields of a line of terse output, version 3 (fio's manual, "TERSE OUTPUT"), counted from 0.
/// Those of writes come `WRITES` after those of reads.
const ERROR: usize = 4;
const IOPS: usize = 7;
const PERCENTILES: std::ops::Range<usize> = 17..37;
const MEAN_US: usize = 39;
const WRITES: usize = 41;

/// Reads a line of terse output. Where a job did both, its reads count.
pub(super) fn parse(output: &str) -> Result<Sample> {
    let line = output
        .lines()
        .find(|line| line.starts_with("3;"))
        .with_context(|| format!("fio printed no figures: {}", output.trim()))?;
    let fields: Vec<&str> = line.split(';').collect();
    ensure!(
        fields.len() > PERCENTILES.end + WRITES,
        "fio's line is short: {line}"
    );
    ensure!(fields[ERROR] == "0", "fio had the error {}", fields[ERROR]);
    let offset = if fields[IOPS] == "0" { WRITES } else { 0 };
    let number = |at: usize| -> Result<f64> {
        let field = fields[at + offset];
        field
            .parse()
            .with_context(|| format!("fio's figure {field:?}"))
    };
    let percentile = |name: &str| {
        let range = PERCENTILES.start + offset..PERCENTILES.end + offset;
        let found = fields[range]
            .iter()
            .find_map(|field| field.strip_prefix(name));
        found.and_then(|value| value.strip_prefix('=')?.parse().ok())
    };
    Ok(Sample {
        iops: number(IOPS)?,
        mean_us: number(MEAN_US)?,
        p50_us: percentile("50.000000%"),
        p99_us: percentile("99.000000%"),
        p999_us: percentile("99.900000%"),
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As fio 3.39 printed it for reads.
    const READS: &str = "3;fio-3.39;x;0;0;520564;520043;130010;1001;0;657;1.412250;2.232362;0;5121;224.161503;\
        187.918279;1.000000%=193;5.000000%=197;10.000000%=199;20.000000%=201;30.000000%=203;40.000000%=205;\
        50.000000%=207;60.000000%=209;70.000000%=211;80.000000%=214;90.000000%=222;95.000000%=238;99.000000%=544;\
        99.500000%=897;99.900000%=3817;99.950000%=4685;99.990000%=5144;0%=0;0%=0;0%=0;24;5122;225.573753;187.931114;\
        496256;544864;100.000000%;520560.000000;34371.046420;0;0;0;0;0;0;0.000000;0.000000;0;0;0.000000;0.000000;\
        1.000000%=0;5.000000%=0;10.000000%=0;20.000000%=0;30.000000%=0;40.000000%=0;50.000000%=0;60.000000%=0;\
        70.000000%=0;80.000000%=0;90.000000%=0;95.000000%=0;99.000000%=0;99.500000%=0;99.900000%=0;99.950000%=0;\
        99.990000%=0;0%=0;0%=0;0%=0;0;0;0.000000;0.000000;0;0;0.000000%;0.000000;0.000000;6.4%;22.9%;4083;0;32";

    #[test]
    fn reads() {
        let sample = parse(&format!("fio: a note\n{READS}\n")).unwrap();
        assert_eq!(sample.iops, 130_010.0);
        assert_eq!(sample.mean_us, 225.573753);
        assert_eq!(sample.p50_us, Some(207.0));
        assert_eq!(sample.p99_us, Some(544.0));
        assert_eq!(sample.p999_us, Some(3817.0));
    }

    #[test]
    fn writes_stand_behind_reads() {
        // the two halves the other way around
        let fields: Vec<&str> = READS.split(';').collect();
        let swapped = [&fields[..5], &fields[46..87], &fields[5..46], &fields[87..]].concat();
        let sample = parse(&swapped.join(";")).unwrap();
        assert_eq!((sample.iops, sample.p50_us), (130_010.0, Some(207.0)));
        assert_eq!(sample.mean_us, 225.573753);
    }

    #[test]
    fn what_is_no_result_is_an_error() {
        assert!(parse("").is_err());
        assert!(
            parse("fio: failed\n")
                .unwrap_err()
                .to_string()
                .contains("failed")
        );
        assert!(parse("3;fio-3.39;x;0;0;1").is_err());
        let failed = READS.replacen(";0;0;5", ";0;5;5", 1);
        assert!(parse(&failed).unwrap_err().to_string().contains("error 5"));
    }
}
