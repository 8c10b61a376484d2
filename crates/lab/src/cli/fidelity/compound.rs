//! Eight stores of 4 KiB, separately and as one compound command, by the rules of NVMeVirt's
//! published program, compared with its authors' measurements.

use anyhow::anyhow;
use model::preset::LINUX_WRITE_NS;
use model::{Moment, Parameters};
use serde::Serialize;
use simulate::points;
use terminal::units;

/// Published times of eight puts, separately and in one command (FAST 2023, its compound command).
const PUBLISHED_NS: [u64; 2] = [469_000, 86_000];
/// The head of a compound command, and what each part has beside its value, take one more page
/// together.
pub(super) const HEAD_BYTES: u32 = 512;

/// Times of the two ways, `[separate, compound]` where both are given.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compound {
    pub(super) preset: String,
    /// Virtual time of the drive as it is; the parts of the compound command start together.
    pub(super) exact_ns: [u64; 2],
    /// With `arithmetic = "code"`: the parts are one request of all their bytes.
    pub(super) code_ns: [u64; 2],
    /// `code_ns` plus the host time of the authors' machine for each command.
    pub(super) code_with_host_ns: [u64; 2],
    /// The compound command with its head counted as data.
    pub(super) code_with_head_ns: u64,
    pub(super) published_ns: [u64; 2],
    pub(super) published_source: &'static str,
    pub(super) difference: &'static str,
}

impl Compound {
    pub(super) fn of(preset: &str, parameters: &Parameters) -> anyhow::Result<Self> {
        let mut code = parameters.clone();
        code.set("arithmetic", "code", Moment::Creation)
            .map_err(|error| anyhow!("{error}"))?;
        let exact_ns = points::compound(parameters)?;
        let code_ns = points::compound(&code)?;
        let [single, together] = code_ns;
        // Time of one page by the published rule: 32 KiB have seven pages more than 4 KiB.
        let page = (together - single / 8) / 7;
        Ok(Compound {
            preset: preset.to_owned(),
            exact_ns,
            code_ns,
            code_with_host_ns: [single + 8 * LINUX_WRITE_NS, together + LINUX_WRITE_NS],
            code_with_head_ns: together
                + LINUX_WRITE_NS
                + page * u64::from(HEAD_BYTES.div_ceil(4096)),
            published_ns: PUBLISHED_NS,
            published_source: "the NVMeVirt paper (FAST 2023), its compound command: of their model, not of a drive",
            difference: "the share of the host that the authors' script subtracts is that of fio; what their key-value client and their command's unpacking take beside is not published, and is what is missing: 2.6 us for each single command, 6.5 to 9.5 us for the compound one",
        })
    }

    pub(super) fn in_words(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let time = |ns: u64| units::nanoseconds(ns as f64);
        let both =
            |[single, together]: [u64; 2]| format!("{} and {}", time(single), time(together));
        format!(
            "\nEight stores of 4 KiB on {}, one by one and in one command: {}; by the published program's rules {}, with its authors' host {} ({} with the command's head); they published {}\n",
            self.preset,
            both(self.exact_ns),
            both(self.code_ns),
            both(self.code_with_host_ns),
            time(self.code_with_head_ns),
            both(self.published_ns),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 448 us, and 76.5 us or 79.5 us with the head.
    #[test]
    fn the_published_rules_with_the_authors_host() {
        let preset = model::preset::preset("samsung-kvssd").unwrap();
        let parameters = preset.parameters(256 << 20, None).unwrap();
        let compound = Compound::of("samsung-kvssd", &parameters).unwrap();
        assert_eq!(compound.code_with_host_ns[0] / 1_000, 448);
        assert_eq!((compound.code_with_host_ns[1] + 50) / 100, 765);
        assert_eq!((compound.code_with_head_ns + 50) / 100, 795);
        // All parts start together on ten units; at most two of them share a unit here.
        let [single, together] = compound.exact_ns;
        assert!(together * 4 < single, "{:?}", compound.exact_ns);
    }
}
