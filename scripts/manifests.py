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


def differences(given, understood, path):
    """Where one is not as the other."""
    if isinstance(given, dict) and isinstance(understood, dict):
        for key in given.keys() | understood.keys():
            yield from differences(given.get(key), understood.get(key), f"{path}.{key}")
    elif isinstance(given, list) and isinstance(understood, list) and len(given) == len(understood):
        for index, pair in enumerate(zip(given, understood)):
            yield from differences(*pair, f"{path}[{index}]")
    elif given != understood:
        yield path


def check(manifest):
    model = OTHERS.get((manifest["apiVersion"], manifest["kind"]))
    if model is None:
        kubernetes_validate.validate(manifest, VERSION, strict=True)
        return
    understood = model.from_dict(manifest).to_dict()
    # Fields that are not known are left out silently.
    unknown = list(differences(manifest, understood, "$"))
    if unknown:
        raise ValueError(f"the schema has no {', '.join(unknown)}")


failed = False
for path in sys.argv[1:]:
    with open(path) as file:
        for manifest in yaml.safe_load_all(file):
            try:
                check(manifest)
            except Exception as error:
                failed = True
                print(f"{path}: {manifest.get('kind')}: {getattr(error, 'message', error)}", file=sys.stderr)
sys.exit(failed)
