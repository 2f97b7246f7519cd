//! Realms of a drive in memory. Its zones lie in two zone domains, one behind the other. Each realm
//! has zones in both domains; a host can use only the zones of the active domain.

use zonal::nvme::decode::SendTarget;
use zonal::{Lba, Zone, ZoneCond, ZoneId};

use super::super::cdb::Activation;
use super::super::number::ByteOrder::HighFirst;
use super::super::sense::Sense;
use super::super::zones::{
    ActivationResult, ENTRY_BYTES, Realm, RealmsHeader, ZoneDomain, ZoneType,
};
use super::target::{INVALID_FIELD, INVALID_OPCODE, REALM_ZONES, Target};

/// Bits of `ActivationResult::flags`.
const NOT_EMPTY: u8 = 1 << 1;
const NOT_INACTIVE: u8 = 1 << 0;

impl Target {
    /// The first zone of each domain, and the end of the last one; an error without realms.
    fn domain_bounds(&self) -> Result<[u64; 3], Sense> {
        let realms = self.realms.lock().unwrap().len() as u64;
        if realms == 0 {
            return Err(INVALID_OPCODE);
        }
        let [first, second] = REALM_ZONES.map(|zones| zones * realms);
        Ok([0, first, first + second])
    }

    /// The zones of a realm in a domain.
    fn zones_of(&self, realm: usize, domain: usize) -> Result<std::ops::Range<u64>, Sense> {
        let first = self.domain_bounds()?[domain] + realm as u64 * REALM_ZONES[domain];
        Ok(first..first + REALM_ZONES[domain])
    }

    /// The first and the last block of zones.
    fn blocks_of(&self, zones: std::ops::Range<u64>) -> (Lba, Lba) {
        let size = self.device.geometry().zone_size().get() << self.shift;
        (Lba::new(zones.start * size), Lba::new(zones.end * size - 1))
    }

    /// Whether the active domain of its realm has a zone.
    pub(super) fn is_active(&self, zone: &Zone) -> bool {
        let Ok([_, second, _]) = self.domain_bounds() else { return true };
        let number = u64::from(zone.id.get());
        let (domain, first) = if number < second { (0, 0) } else { (1, second) };
        let realm = usize::try_from((number - first) / REALM_ZONES[domain]).unwrap();
        usize::from(self.realms.lock().unwrap()[realm]) == domain
    }

    /// The answer to REPORT REALMS.
    pub(super) fn list_realms(&self) -> Result<Vec<u8>, Sense> {
        self.domain_bounds()?;
        let active = self.realms.lock().unwrap().clone();
        let mut list = Vec::new();
        for (id, &active_domain) in active.iter().enumerate() {
            let ranges = [0, 1].map(|domain| self.zones_of(id, domain).map(|z| self.blocks_of(z)));
            let [first, second] = ranges;
            let ranges = vec![first?, second?];
            let id = u32::try_from(id).unwrap();
            list.push(Realm { id, restrictions: 0, active_domain, ranges }.encode(HighFirst));
        }
        let descriptor_bytes = u32::try_from(list[0].len()).unwrap();
        let count = u32::try_from(list.len()).unwrap();
        let list_bytes = count * descriptor_bytes;
        let header = RealmsHeader { list_bytes, count, descriptor_bytes, next: Lba::ZERO };
        Ok([header.encode(HighFirst).to_vec(), list.concat()].concat())
    }

    /// The answer to REPORT ZONE DOMAINS.
    pub(super) fn list_domains(&self) -> Result<Vec<u8>, Sense> {
        let bounds = self.domain_bounds()?;
        let mut answer = vec![0; ENTRY_BYTES];
        answer[9] = 2;
        let kinds = [ZoneType::Conventional, ZoneType::SequentialRequired];
        for (id, kind) in (0_u8..).zip(kinds) {
            let zones = bounds[usize::from(id)]..bounds[usize::from(id) + 1];
            let count = zones.end - zones.start;
            let (first, last) = self.blocks_of(zones);
            let domain = ZoneDomain { id, zones: count, first, last, kind: kind.code(), flags: 2 };
            answer.extend(domain.encode(HighFirst));
        }
        Ok(answer)
    }

    /// The realm that an activation names by its first block.
    pub(super) fn realm_at(&self, what: Activation) -> Result<usize, Sense> {
        let SendTarget::Start(start) = what.zones else { return Err(INVALID_FIELD) };
        let domain = usize::from(what.domain);
        let realms = self.realms.lock().unwrap().len();
        if domain >= REALM_ZONES.len() || what.count.map(u64::from) != Some(REALM_ZONES[domain]) {
            return Err(INVALID_FIELD);
        }
        let is_start = |realm: &usize| {
            self.zones_of(*realm, domain).is_ok_and(|zones| self.blocks_of(zones).0 == start)
        };
        (0..realms).find(is_start).ok_or(INVALID_FIELD)
    }

    /// The answer to ZONE QUERY: an activation would get the same.
    pub(super) fn query(&self, what: Activation) -> Result<ActivationResult, Sense> {
        let realm = self.realm_at(what)?;
        let active = self.realms.lock().unwrap()[realm];
        let unmet = |flags, zone| ActivationResult { activated: false, flags, zone };
        if active == what.domain {
            let (first, _) = self.blocks_of(self.zones_of(realm, usize::from(active))?);
            return Ok(unmet(NOT_INACTIVE, Some(first)));
        }
        for number in self.zones_of(realm, usize::from(active))? {
            let zone = self.device.zone(ZoneId::new(u32::try_from(number).unwrap())).unwrap();
            if zone.kind.is_sequential() && zone.cond != ZoneCond::Empty {
                return Ok(unmet(NOT_EMPTY, Some(Lba::new(zone.start.get() << self.shift))));
            }
        }
        Ok(unmet(0, None))
    }
}
