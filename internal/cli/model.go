package cli

import "github.com/spf13/pflag"

// BindModel adds the flags of all commands that open a model: which one, and where it computes.
func BindModel(f *pflag.FlagSet, model, device *string) {
	f.StringVar(model, "model", *model, "model folder or GGUF file, org/name[@revision][:FILE.gguf] of the hub, or s3://BUCKET/NAME; empty: built-in")
	f.StringVar(device, "device", *device, "cpu, cuda:N, auto for a GPU where there is one, or several that share the layers, as cuda:0-3")
}
