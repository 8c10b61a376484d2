//! The report of a guest's job: the lines of `guest/steps.sh`, parsed.

use std::collections::BTreeMap;

/// One step of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Whether its command succeeded.
    pub ok: bool,
    /// The rest of its line: seconds taken, exit status.
    pub detail: String,
}

/// All that a job said.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The steps that ended, in order.
    pub steps: Vec<Step>,
    /// The step that had begun and not ended when the guest went away.
    pub unfinished: Option<String>,
    /// The job's own exit status; none where the guest went away before the job ended.
    pub status: Option<i32>,
    texts: BTreeMap<String, String>,
}

impl Report {
    /// Reads the lines that the job printed.
    #[must_use]
    pub fn parse<S: AsRef<str>>(lines: &[S]) -> Self {
        let mut report = Self::default();
        for line in lines {
            if let Some(rest) = line.as_ref().strip_prefix("@@ ") {
                report.take(rest);
            }
        }
        report
    }

    /// The output of a command that the job handed over with `tell NAME`; none where it did not.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// Whether the job ran to its end and every step succeeded.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.status == Some(0) && self.unfinished.is_none() && self.steps.iter().all(|step| step.ok)
    }

    /// In a line: the step that failed or hung, or how the job ended.
    #[must_use]
    pub fn verdict(&self) -> String {
        if let Some(step) = self.steps.iter().find(|step| !step.ok) {
            return format!("step {} failed: {}", step.name, step.detail);
        }
        if let Some(name) = &self.unfinished {
            return format!("step {name} did not end");
        }
        match self.status {
            Some(0) => format!("{} steps passed", self.steps.len()),
            Some(status) => format!("the job exited with status {status}"),
            None => "the guest went away before its job ended".to_owned(),
        }
    }

    fn take(&mut self, line: &str) {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match kind {
            "begin" => self.unfinished = Some(name.to_owned()),
            "step" => {
                let (word, detail) = rest.split_once(' ').unwrap_or((rest, ""));
                let step = Step {
                    name: name.into(),
                    ok: word == "ok",
                    detail: detail.into(),
                };
                self.unfinished = None;
                self.steps.push(step);
            }
            "tell" => {
                let text = self.texts.entry(name.to_owned()).or_default();
                text.push_str(rest);
                text.push('\n');
            }
            "end" => self.status = name.parse().ok(),
            _ => {} // `say`: for those who wait for it
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_went_well() {
        let lines = [
            "hello",
            "@@ begin a",
            "@@ step a ok 3 s",
            "@@ tell id {",
            "@@ tell id   \"x\": 1",
            "@@ say go",
            "@@ end 0",
        ];
        let report = Report::parse(&lines);
        assert!(report.ok());
        assert_eq!(
            report.steps,
            [Step {
                name: "a".into(),
                ok: true,
                detail: "3 s".into()
            }]
        );
        assert_eq!(report.text("id"), Some("{\n  \"x\": 1\n"));
        assert_eq!(report.text("ls"), None);
        assert_eq!(report.verdict(), "1 steps passed");
    }

    #[test]
    fn ways_to_fail() {
        let failed = Report::parse(&["@@ begin a", "@@ step a fail exit status 2", "@@ end 1"]);
        assert!(!failed.ok());
        assert_eq!(failed.verdict(), "step a failed: exit status 2");
        let hung = Report::parse(&["@@ begin a", "@@ step a ok 1 s", "@@ begin b"]);
        assert!(!hung.ok());
        assert_eq!(hung.verdict(), "step b did not end");
        let gone = Report::parse(&["@@ begin a", "@@ step a ok 1 s"]);
        assert!(!gone.ok());
        assert!(gone.verdict().contains("went away"));
        let bad = Report::parse(&["@@ step a ok 1 s", "@@ end 7"]);
        assert!(!bad.ok() && bad.verdict().contains("status 7"));
    }
}
