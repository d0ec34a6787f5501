"""The intermediate representations: nodes, their printer, verifier and interpreters."""
