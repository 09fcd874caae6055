# make up · make test · make help
PYTHON ?= python3
SANDBOX ?= sandbox
PORT ?= 8000
ROLE ?= vllm
SCENARIO ?= default
DO ?= test
export SANDBOX PORT

.DEFAULT_GOAL := help
.PHONY: help up down venv lock lint format test molecule bench fuzz mutations mutants logs hostile docs site collection image man approve sbom audit clean

help: ## show this
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

up: ## a systemd host on this machine with vLLM on it, diagnosed (PORT=8000)
	@$(PYTHON) tools/up.py

down: ## remove what make up made
	@$(PYTHON) tools/down.py

venv: ## .venv with ansible, molecule and vllm-doctor, from the lock
	@$(PYTHON) tools/make_venv.py

lock: venv ## write the locks anew (UPGRADE=1: newest versions)
	@tools/lock.sh

lint: venv ## every static check
	@.venv/bin/python tools/lint.py

format: venv ## let ruff put the layout right
	@.venv/bin/ruff check --quiet --fix-only . ; .venv/bin/ruff format .

docs: venv ## write the generated tables anew
	@.venv/bin/python tools/role_docs.py && .venv/bin/python tools/finding_docs.py && .venv/bin/python tools/sentence_docs.py && .venv/bin/python tools/template_docs.py && .venv/bin/python tools/alert_docs.py && .venv/bin/python tools/pictures.py

site: venv ## the documentation as a site: docs/, a page a finding, command and role; refuses a broken link (build/site)
	@.venv/bin/python tools/doc_site.py

collection: venv ## the roles and playbooks as the Ansible collection vllm_doctor.hosts, an archive to install (build/collection)
	@.venv/bin/python tools/collection.py

image: venv ## the doctor alone as a container image (BASE=image PYTHON_OF_BASE=3.13 TAG=vllm-doctor)
	@tools/hosttest .venv/bin/python tools/doctor_image.py

approve: venv ## what the doctor answers to every scenario and launch becomes the approved answer; says what changed
	@.venv/bin/python -m tests.approved

man: venv ## a manual page for each command, from the commands (build/man)
	@.venv/bin/python tools/man_pages.py

sbom: venv ## what the doctor and each vLLM release consist of, as CycloneDX (build/sbom)
	@.venv/bin/python tools/sbom.py

audit: venv ## known advisories on everything that a lock pins, where a database of them answers
	@.venv/bin/python tools/audit.py

test: ## lint, Python tests, Molecule, sandbox: everything that needs no GPU
	@$(PYTHON) tools/run_tests.py

molecule: ## one scenario: make molecule ROLE=vllm SCENARIO=default DO=converge
	@$(PYTHON) tools/up.py --only-prepare
	@cd roles/$(ROLE) && ../../tools/hosttest molecule $(DO) -s $(SCENARIO)

bench: venv ## every benches/bench_*.py
	@set -e; for bench in benches/bench_*.py; do echo "== $$bench"; .venv/bin/python "$$bench"; done

fuzz: venv ## ten minutes on each target that reads what others wrote (TARGET=log MINUTES=60)
	@set -e; for target in $(or $(TARGET),log long_log written metrics bundle snapshot launch plan host redaction config unit); do \
	  echo "== $$target"; .venv/bin/python -m tests.fuzz.run $$target -max_total_time=$$(( $(or $(MINUTES),10) * 60 )) -verbosity=0; done

mutations: venv ## 28,000 mutated logs: none may turn a failure that still stands into ok (LOGS=folder)
	@.venv/bin/python -m tests.rules.mutate_logs $(if $(LOGS),--logs $(LOGS))

mutants: venv ## small bugs in the rooms that make numbers: which does no test see? (EACH=110 a room, SEED=1 MINUTES=60 CLOCK=600 ENOUGH=60 ROOMS=rules,remedy AGAIN=1)
	@nice -n 19 .venv/bin/python -m tests.mutants.run $(if $(ROOMS),--rooms $(ROOMS)) --each $(or $(EACH),110) --seed $(or $(SEED),1) --minutes $(or $(MINUTES),60) --clock $(or $(CLOCK),600) --enough $(or $(ENOUGH),60) $(if $(AGAIN),--again)

logs: venv ## every log with every stop before it, line inside it and envelope around it: the verdict stays
	@VLLM_DOCTOR_ALL_LOGS=1 .venv/bin/python -m pytest -q tests/rules/test_runs.py

hostile: venv ## what strangers may hand over, write and name, and every pattern, at their full sizes (an hour)
	@.venv/bin/python -m tests.hostile

clean: down ## also remove every test host of this checkout, .venv and build outputs
	@! command -v podman >/dev/null || tools/host.py down
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .ansible build dist
