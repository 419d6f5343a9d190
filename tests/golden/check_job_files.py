#!/usr/bin/env python3
"""Checks the job files of tests/golden/job_files, which `trivet launch --emit` prints in a test:

  python3 -m venv venv && venv/bin/pip install azure-ai-ml kubernetes-validate pyyaml
  venv/bin/python tests/golden/check_job_files.py

The file for Azure ML by the loader of the package azure-ai-ml, which has Azure's schema; that for Kubernetes by the schemas that
the package kubernetes-validate brings; the scripts by `bash -n`. Exits with 0 if all are accepted.
"""
import pathlib
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml
from azure.ai.ml import load_job

folder = pathlib.Path(__file__).parent / "job_files"
for script in sorted(folder.glob("*.sh")):
    subprocess.run(["bash", "-n", script], check=True)
    print(f"{script.name}: accepted by bash")

for document in yaml.safe_load_all((folder / "kubernetes.yaml").read_text()):
    kubernetes_validate.validate(document, "1.30", strict=True)
    print(f"kubernetes.yaml: {document['kind']}: accepted")

# The loader looks for the files that the job uploads.
with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    (place / "job.yml").write_text((folder / "azureml.yml").read_text())
    (place / "text.txt").write_text("text")
    (place / "trivet.secret").write_text("secret")
    job = load_job(place / "job.yml")
wanted = {"hosts": 2, "ranks": 8, "seconds": 5400}
found = {"hosts": job.resources.instance_count, "ranks": job.distribution.process_count_per_instance, "seconds": job.limits.timeout}
if found != wanted:
    sys.exit(f"azureml.yml: {found} instead of {wanted}")
print(f"azureml.yml: accepted; inputs {sorted(job.inputs)}, outputs {sorted(job.outputs)}")
