//! Drives of this machine.

use crate::mutants::{Mutation, integration, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "physical-used",
        guard: "a drive that something uses is not taken from the kernel",
        file: "crates/lab/src/physical/bind.rs",
        from: "        drive.in_use_by.is_empty(),\n",
        to: "        true,\n",
        test: unit("lab", "physical::tests::a_mounted_drive_is_in_use"),
    },
    Mutation {
        name: "physical-partition",
        guard: "a drive whose partition is in use is in use",
        file: "crates/lab/src/physical/users.rs",
        from: "folder.join(part).join(\"partition\").exists()",
        to: "folder.join(part).join(\"nothing\").exists()",
        test: unit("lab", "physical::tests::swap_and_volumes_are_in_use"),
    },
    Mutation {
        name: "physical-group",
        guard: "a drive is not taken with a function that the kernel drives in its IOMMU group",
        file: "crates/lab/src/physical/bind.rs",
        from: "driver.filter(|driver| driver != VFIO_PCI)",
        to: "driver.filter(|driver| driver == VFIO_PCI)",
        test: unit(
            "lab",
            "physical::tests::a_group_is_handed_over_whole_and_only_behind_an_iommu",
        ),
    },
    Mutation {
        name: "recover-function",
        guard: "a controller that cannot be disabled is reset by its PCI function",
        file: "crates/driver/src/device/bring_up.rs",
        from: "            Err(_) => {\n                self.reset_function()?;\n",
        to: "            Err(_) => {\n",
        test: integration(
            "driver",
            &["--test", "driver"],
            "vfio_user_bus::a_controller_that_cannot_be_disabled_is_recovered_by_a_function_reset",
        ),
    },
];
