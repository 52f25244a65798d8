//! Assignment of addresses.

use super::ingress;
use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of addresses of each family.
const ADDRESSES: u16 = 32 * 254;

/// Returns the address with a number: downwards from 172.18.255.0, without the first and last of each block.
fn address(number: u16, is_v6: bool) -> IpAddr {
    let (block, host) = (number / 254, number % 254 + 1);
    if is_v6 {
        return IpAddr::V6(Ipv6Addr::new(0xfc00, 0xf853, 0x0ccd, 0xe793, 0, 0, 255 - block, host));
    }
    let part = |number: u16| u8::try_from(number).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(172, 18, part(255 - block), part(host)))
}

/// The assigned addresses by service UID, since the cache may be stale.
#[derive(Debug, Default)]
pub(super) struct Addresses(Mutex<BTreeMap<String, Vec<IpAddr>>>);

impl Addresses {
    /// Returns the addresses of a service, one for each of its families: its current ones, unless another service has
    /// them, or the first free ones.
    pub(super) fn assign(&self, service: &Service, all: &[Service]) -> Result<Vec<IpAddr>, String> {
        let mut assigned = self.0.lock();
        assigned.retain(|uid, _| all.iter().any(|known| known.metadata.uid.as_ref() == Some(uid)));
        let uid = service.metadata.uid.clone().unwrap_or_default();
        let others = all.iter().filter(|other| other.metadata.uid.as_ref() != Some(&uid));
        let shown = others.flat_map(ingress).filter_map(|ingress| ingress.ip.as_ref()?.parse().ok());
        let reserved =
            assigned.iter().filter(|(of, _)| **of != uid).flat_map(|(_, addresses)| addresses.iter().copied());
        let used: BTreeSet<IpAddr> = shown.chain(reserved).collect();
        let own: Vec<IpAddr> = match assigned.get(&uid) {
            Some(addresses) => addresses.clone(),
            None => ingress(service).iter().filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect(),
        };
        let spec = service.spec.as_ref();
        let wish = spec.and_then(|spec| spec.load_balancer_ip.as_ref()).filter(|ip| !ip.is_empty());
        let families = spec.and_then(|spec| spec.ip_families.clone()).unwrap_or_else(|| vec!["IPv4".into()]);
        let mut addresses = Vec::new();
        for is_v6 in families.iter().map(|family| family == "IPv6") {
            let wish: Option<IpAddr> = wish.and_then(|ip| ip.parse().ok()).filter(|ip: &IpAddr| ip.is_ipv6() == is_v6);
            if let Some(wish) = wish.filter(|wish| used.contains(wish)) {
                return Err(format!("address {wish} is taken"));
            }
            let current = own.iter().copied().find(|ip| ip.is_ipv6() == is_v6 && !used.contains(ip));
            let free = || (0..ADDRESSES).map(|number| address(number, is_v6)).find(|ip| !used.contains(ip));
            addresses.push(wish.or(current).or_else(free).ok_or("no free address")?);
        }
        assigned.insert(uid, addresses.clone());
        Ok(addresses)
    }

    /// Releases the addresses of a service.
    pub(super) fn release(&self, service: &Service) {
        let uid = service.metadata.uid.clone().unwrap_or_default();
        self.0.lock().remove(&uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_unique_and_released() {
        let addresses = Addresses::default();
        let service = |uid: &str, spec: serde_json::Value| -> Service {
            serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
        };
        let all: Vec<Service> = ["a", "b", "c", "d"].map(|uid| service(uid, json!({}))).into();
        let check = |service: &Service, expect: Result<&[&str], &str>| {
            let assigned = addresses.assign(service, &all);
            let assigned = assigned.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            let expect = expect.map(|all| all.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>());
            assert_eq!(assigned, expect.map_err(str::to_owned));
        };
        check(&all[0], Ok(&["172.18.255.1"]));
        check(&all[1], Ok(&["172.18.255.2"]));
        check(&all[0], Ok(&["172.18.255.1"]));
        check(&service("c", json!({"loadBalancerIP": "10.1.1.1"})), Ok(&["10.1.1.1"]));
        check(&service("d", json!({"loadBalancerIP": "10.1.1.1"})), Err("address 10.1.1.1 is taken"));
        addresses.release(&all[0]);
        check(
            &service("d", json!({"ipFamilies": ["IPv6", "IPv4"]})),
            Ok(&["fc00:f853:ccd:e793::ff:1", "172.18.255.1"]),
        );
        assert_eq!(address(254, false).to_string(), "172.18.254.1");
    }
}
