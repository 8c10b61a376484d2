//! The list of policies that choose the line to collect.

/// Hands the list to the macro `$with`: documentation, module in `flash/policy` and type of the
/// same name, and the word in a configuration. The first one is the default.
macro_rules! collection_policies {
    ($with:ident) => {
        $with! {
            /// The line with the fewest valid pages.
            greedy::Greedy, "greedy";
            /// By what is gained, and how old it is.
            cost_benefit::CostBenefit, "cost_benefit";
            /// The oldest.
            fifo::Fifo, "fifo";
        }
    };
}
