// Reads documents.json, checks each document against the schema of its CRD, and writes a TypeScript file with a typed
// constant for each. The types detect unknown fields, which the schemas allow.
import { readFileSync, writeFileSync } from "node:fs";

const PACKAGES = {
    "monitoring.coreos.com": "prometheus-operator",
    "cert-manager.io": "cert-manager",
    "keda.sh": "keda",
    "gateway.networking.k8s.io": "gateway-api",
};

const documents = JSON.parse(readFileSync("documents.json", "utf8"));
let source = "";
for (const [at, document] of documents.entries()) {
    const [group] = document.apiVersion.split("/");
    const module = `@kubernetes-models/${PACKAGES[group]}/${document.apiVersion}/${document.kind}`;
    const kind = (await import(module))[document.kind];
    try {
        new kind(document).validate();
    } catch (error) {
        console.log(`${document.kind} ${document.metadata.name}: ${error.message}`);
    }
    source += `import type { I${document.kind} as Kind${at} } from "${module}";\n`;
    source += `export const document${at}: Kind${at} = ${JSON.stringify(document, null, 2)};\n`;
}
writeFileSync("documents.ts", source);
