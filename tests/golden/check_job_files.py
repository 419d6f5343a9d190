#!/usr/bin/env python3
"""Checks the job files of tests/golden/job_files, which `trivet launch --emit` prints in a test, and those of examples/:

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

examples = folder.parents[2] / "examples"


def load(file):
    """The job, as Azure's loader understands it. It looks for the files that the job uploads, so they are made."""
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        (place / "job.yml").write_text(file.read_text())
        for given in yaml.safe_load(file.read_text())["inputs"].values():
            if given["type"] == "uri_folder":
                (place / given["path"]).mkdir()
            else:
                (place / given["path"]).write_text("text")
        return load_job(place / "job.yml")


def check(file, **wanted):
    job = load(file)
    distribution = job.distribution
    found = {"type": distribution.type.lower(), "hosts": job.resources.instance_count,
             "ranks": getattr(distribution, "worker_count", None) or getattr(distribution, "process_count_per_instance", None),
             "seconds": job.limits.timeout if job.limits else None}
    if found != {"seconds": None, **wanted}:
        sys.exit(f"{file}: {found} instead of {wanted}")
    print(f"{file.name}: accepted; inputs {sorted(job.inputs)}, outputs {sorted(job.outputs)}")


check(folder / "azureml.yml", type="pytorch", hosts=2, ranks=8, seconds=5400)
jobs = {
    "05_mnist/azureml_horovod.yml": {"type": "mpi", "hosts": 2, "ranks": 1},
    "05_mnist/azureml_tensorflow.yml": {"type": "tensorflow", "hosts": 2, "ranks": 2},
    "05_mnist/azureml_vision_transformer.yml": {"type": "pytorch", "hosts": 2, "ranks": 1},
    "06_cifar10/azureml_ddp.yml": {"type": "pytorch", "hosts": 2, "ranks": 1},
    "06_cifar10/azureml_deepspeed.yml": {"type": "pytorch", "hosts": 2, "ranks": 8, "seconds": 900},
    "06_cifar10/azureml_tuning.yml": {"type": "pytorch", "hosts": 2, "ranks": 8, "seconds": 1800},
    "08_horovod_mnist/azureml.yml": {"type": "mpi", "hosts": 2, "ranks": 1},
    "10_genomics/azureml.yml": {"type": "pytorch", "hosts": 2, "ranks": 8},
    "11_handwriting/azureml.yml": {"type": "pytorch", "hosts": 2, "ranks": 1},
    "12_man_pages/azureml.yml": {"type": "pytorch", "hosts": 2, "ranks": 1},
}
if found := set(str(file.relative_to(examples)) for file in examples.glob("*/azureml*.yml")) ^ set(jobs):
    sys.exit(f"examples/: not the job files that are checked here: {sorted(found)}")
for name, wanted in jobs.items():
    check(examples / name, **wanted)
