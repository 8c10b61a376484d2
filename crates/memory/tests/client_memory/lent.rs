//! The memory of a region, apart from any view.

use std::sync::Arc;

use memory::{Access, ClientMappings, DmaMap, DmaView, Hint, Iova, Need};

use crate::client::{Client, PAGE};

#[test]
fn what_is_lent_ends_with_the_last_view_of_its_region_and_is_another_after_the_next_map() {
    let client = Client::new("lent", 4 * PAGE);
    let mapping = ClientMappings::new().map(client.fd()).unwrap();
    let mut map = DmaMap::new(2);
    let lend = |map: &mut DmaMap| {
        let backing = Some((mapping.clone(), PAGE));
        map.map(Iova(0), 2 * PAGE, Access::READ_WRITE, backing)
            .unwrap();
    };
    lend(&mut map);
    let view = map.view();
    let lent = Arc::downgrade(view.lent().next().unwrap());
    let id = lent.upgrade().unwrap().id();
    assert_eq!(lent.upgrade().unwrap().as_raw().1, 2 * PAGE);
    let segment_of = |view: &DmaView| {
        let hint = &mut Hint::default();
        let segment = view.translate(hint, Iova(PAGE), 1, Need::DeviceReads);
        segment.unwrap().lent_id()
    };
    assert_eq!(segment_of(&view), id);
    // another region comes and goes
    map.map(Iova(1 << 20), PAGE, Access::READ, None).unwrap();
    map.unmap(Iova(1 << 20), PAGE).unwrap();
    assert_eq!(segment_of(&map.view()), id);
    map.unmap(Iova(0), 2 * PAGE).unwrap();
    assert!(lent.strong_count() > 0, "a command may still use it");
    drop(view);
    assert_eq!(lent.strong_count(), 0);
    lend(&mut map);
    assert_ne!(segment_of(&map.view()), id);
}

#[test]
fn lent_memory_is_allocated_when_asked_for_and_keeps_its_bytes() {
    let client = Client::new("populated", 8 * PAGE);
    client.write(3 * PAGE, &[7]);
    let allocated = || rustix::fs::fstat(client.fd()).unwrap().st_blocks * 512;
    assert_eq!(allocated(), PAGE as i64);
    let mapping = ClientMappings::new().map(client.fd()).unwrap();
    let mut map = DmaMap::new(2);
    let backing = |offset| Some((mapping.clone(), offset));
    map.map(Iova(0), 4 * PAGE, Access::READ_WRITE, backing(2 * PAGE))
        .unwrap();
    map.map(Iova(1 << 20), PAGE, Access::READ, backing(0))
        .unwrap();
    let view = map.view();
    let lent: Vec<_> = view.lent().collect();
    assert!(lent[0].is_writable() && !lent[1].is_writable());
    lent[0].populate(PAGE, 3 * PAGE).unwrap();
    assert_eq!(allocated(), 3 * PAGE as i64);
    assert_eq!(client.read(3 * PAGE), [7]);
    assert!(lent[0].populate(PAGE, 4 * PAGE).is_err(), "past its end");
    assert!(lent[0].populate(u64::MAX, PAGE).is_err());
    assert!(
        lent[1].populate(0, PAGE).is_err(),
        "it is not to be written"
    );
    assert_eq!(allocated(), 3 * PAGE as i64);
}
