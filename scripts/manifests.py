"""Fails if a manifest is not what its schema asks for, or has a field that the schema does not know."""

import sys

import kubernetes_validate
import yaml
from kubeflow_trainer_api import models

VERSION = "1.37"
# Those that are not Kubernetes' own.
OTHERS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): models.JobsetV1alpha2JobSet,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): models.TrainerV1alpha1TrainJob,
}


def check(manifest):
    model = OTHERS.get((manifest["apiVersion"], manifest["kind"]))
    if model is None:
        kubernetes_validate.validate(manifest, VERSION, strict=True)
        return
    understood = model.from_dict(manifest).to_dict()
    # Fields that are not known are left out silently.
    if understood != manifest:
        raise ValueError(f"of this only a part is known: {manifest}; it is {understood}")


failed = False
for path in sys.argv[1:]:
    with open(path) as file:
        for manifest in yaml.safe_load_all(file):
            try:
                check(manifest)
            except Exception as error:
                failed = True
                print(f"{path}: {manifest.get('kind')}: {error}", file=sys.stderr)
sys.exit(failed)
