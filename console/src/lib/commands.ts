// Each action as the line that does the same elsewhere.

import { last } from './format';
import { location, project } from './store.svelte';

export interface Line {
  tool: 'weir' | 'gcloud' | 'Terraform' | 'ONTAP' | 'curl';
  text: string;
}

const flags = (name: string): string => {
  const at = [
    project(name) === 'weir' ? '' : ` --project=${project(name)}`,
    location(name) === 'local' ? '' : ` --location=${location(name)}`,
  ];
  return at.join('');
};

const gflags = (name: string): string =>
  ` --project=${project(name)} --location=${location(name)}`;

/** Returns a curl line for a request to this server. */
export function curl(method: string, path: string, body?: unknown): Line {
  const data = body === undefined ? '' : ` \\\n  -H 'Content-Type: application/json' -d '${JSON.stringify(body)}'`;
  const verb = method === 'GET' ? '' : `-X ${method} `;
  return { tool: 'curl', text: `curl ${verb}'${globalThis.location.origin}${path}'${data}` };
}

/** Returns the lines that set a volume's throughput. */
export function throughput(name: string, mibps: number): Line[] {
  const id = last(name);
  return [
    {
      tool: 'weir',
      text:
        `weir volumes update ${id} --throughput-mibps=${mibps} --validate-only${flags(name)}\n` +
        `weir volumes update ${id} --throughput-mibps=${mibps}${flags(name)}`,
    },
    {
      tool: 'gcloud',
      text: `gcloud netapp volumes update ${id}${gflags(name)} --throughput-mibps=${mibps}`,
    },
    {
      tool: 'Terraform',
      text: `resource "google_netapp_volume" "${id.replace(/-/g, '_')}" {\n  throughput_mibps = ${mibps}\n}`,
    },
    {
      tool: 'ONTAP',
      text:
        `qos policy-group create -policy-group ${id}-${mibps} -vserver ${project(name)} -max-throughput ${mibps}MB/s\n` +
        `volume modify -vserver ${project(name)} -volume ${id} -qos-policy-group ${id}-${mibps}`,
    },
    curl('PATCH', `/v1/${name}?updateMask=throughputMibps`, { throughputMibps: mibps }),
  ];
}

/** Returns the lines that set the capacity of a volume or pool. */
export function capacity(name: string, gib: number): Line[] {
  const id = last(name);
  const pool = name.includes('/storagePools/');
  const noun = pool ? 'storage-pools' : 'volumes';
  const lines: Line[] = [
    {
      tool: 'weir',
      text:
        `weir ${noun} update ${id} --capacity=${gib}GiB --validate-only${flags(name)}\n` +
        `weir ${noun} update ${id} --capacity=${gib}GiB${flags(name)}`,
    },
    { tool: 'gcloud', text: `gcloud netapp ${noun} update ${id}${gflags(name)} --capacity=${gib}` },
    {
      tool: 'Terraform',
      text: `resource "google_netapp_${pool ? 'storage_pool' : 'volume'}" "${id.replace(/-/g, '_')}" {\n  capacity_gib = ${gib}\n}`,
    },
  ];
  if (!pool) {
    lines.push({
      tool: 'ONTAP',
      text: `volume size -vserver ${project(name)} -volume ${id} -new-size ${gib}GB`,
    });
  }
  lines.push(curl('PATCH', `/v1/${name}?updateMask=capacityGib`, { capacityGib: gib }));
  return lines;
}

/** Returns the lines that set the throughput of a Flex pool. */
export function poolThroughput(name: string, mibps: number): Line[] {
  const id = last(name);
  return [
    {
      tool: 'weir',
      text:
        `weir storage-pools update ${id} --total-throughput=${mibps} --validate-only${flags(name)}\n` +
        `weir storage-pools update ${id} --total-throughput=${mibps}${flags(name)}`,
    },
    {
      tool: 'gcloud',
      text: `gcloud netapp storage-pools update ${id}${gflags(name)} --total-throughput=${mibps}`,
    },
    {
      tool: 'Terraform',
      text: `resource "google_netapp_storage_pool" "${id.replace(/-/g, '_')}" {\n  total_throughput_mibps = ${mibps}\n}`,
    },
    curl('PATCH', `/v1/${name}?updateMask=totalThroughputMibps`, { totalThroughputMibps: mibps }),
  ];
}

/** Returns the lines that make a volume. */
export function create(name: string, body: Record<string, unknown>): Line[] {
  const id = last(name);
  const protocols = (body.protocols as string[]).map((p) => p.toLowerCase());
  const pool = last(String(body.storagePool));
  const throughput = body.throughputMibps ? ` --throughput-mibps=${body.throughputMibps}` : '';
  const rest =
    `${id} --storage-pool=${pool} --capacity=${body.capacityGib}GiB` +
    ` --share-name=${body.shareName} --protocols=${protocols.join(',')}${throughput}`;
  const path = `/v1/${name.slice(0, name.lastIndexOf('/'))}?volumeId=${id}`;
  const tf = [
    `resource "google_netapp_volume" "${id.replace(/-/g, '_')}" {`,
    `  name         = "${id}"`,
    `  location     = "${location(name)}"`,
    `  storage_pool = "${pool}"`,
    `  share_name   = "${body.shareName}"`,
    `  capacity_gib = ${body.capacityGib}`,
    `  protocols    = ${JSON.stringify(body.protocols)}`,
    ...(body.throughputMibps ? [`  throughput_mibps = ${body.throughputMibps}`] : []),
    '}',
  ];
  return [
    { tool: 'weir', text: `weir volumes create ${rest}${flags(name)}` },
    {
      tool: 'gcloud',
      text: `gcloud netapp volumes create ${rest.replace('GiB', '')}${gflags(name)}`,
    },
    { tool: 'Terraform', text: tf.join('\n') },
    {
      tool: 'ONTAP',
      text: `volume create -vserver ${project(name)} -volume ${id} -aggregate ${pool} -size ${body.capacityGib}GB -junction-path /${body.shareName}`,
    },
    curl('POST', path, body),
  ];
}
