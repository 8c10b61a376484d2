//! Parameters of a described drive: by names and values, as in a preset's file.

use super::blank;
use crate::{InvalidParameter, Kind, Moment, Parameters};

impl Parameters {
    /// The parameters of a drive of `kind` and `size_bytes` from names and values. Mechanisms that
    /// are off unless they are asked for may be left out.
    ///
    /// Whether they fit each other and the size is not looked at: that is [`Parameters::check`].
    ///
    /// # Errors
    /// A name that does not exist, a value that cannot be, or what is missing.
    pub fn given<'a>(
        kind: Kind,
        size_bytes: u64,
        values: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidParameter> {
        let mut parameters = blank(kind, size_bytes);
        let mut names = Vec::new();
        for (name, value) in values {
            parameters.set(name, value, Moment::Creation)?;
            names.push(name);
        }
        let asked = kind.parameters().filter(|p| !p.is_extra());
        let missing: Vec<&str> = asked
            .map(|p| p.name)
            .filter(|name| !names.contains(name))
            .collect();
        if missing.is_empty() {
            Ok(parameters)
        } else {
            Err(InvalidParameter::Unfit(format!(
                "a drive of kind {} needs these parameters, too: {}",
                kind.name(),
                missing.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::preset::preset;
    use crate::{Kind, Parameters};

    #[test]
    fn the_values_of_a_preset_make_its_parameters() {
        let pro = preset("samsung-970-pro").unwrap();
        let values: Vec<_> = pro.values().map(|v| (v.name, v.value)).collect();
        let given = Parameters::given(Kind::Flash, 8 << 30, values.iter().copied());
        assert_eq!(given.as_ref(), pro.parameters(8 << 30, None).as_ref());
        // what is off by itself may be left out
        let without = values.iter().copied();
        let without = without.filter(|(name, _)| !Kind::Flash.parameter(name).unwrap().is_extra());
        assert_eq!(Parameters::given(Kind::Flash, 8 << 30, without), given);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Parameters::given(Kind::Nvm, 1 << 30, [("read_latency", "8us")].into_iter());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("arithmetic, read_bandwidth"), "{error}");
        assert!(!error.contains("read_latency,"), "{error}");
        let unknown = Parameters::given(Kind::Nvm, 1 << 30, [("program", "8us")].into_iter());
        assert!(unknown.is_err());
    }
}
