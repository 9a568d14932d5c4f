package cli

import "github.com/spf13/pflag"

// BindModel adds the flags of all commands that open a model: which one, and where it computes.
func BindModel(f *pflag.FlagSet, model, device *string) {
	f.StringVar(model, "model", *model, "name of evict list, folder, file, org/name[@revision][:FILE.gguf] or s3://BUCKET/NAME; empty: built-in")
	f.StringVar(device, "device", *device, "cpu, cuda:N, auto for a GPU where there is one, or several that share the layers, as cuda:0-3")
}

// BindChat adds the flags of all commands that render a chat template: which one, its variables,
// and the date that it is told.
func BindChat(f *pflag.FlagSet, template *string, variables *[]string, date *string) {
	f.StringVar(template, "chat-template", *template, "chat template in the place of the model's: a file in Jinja, or the name of one, as chatml or llama3")
	f.StringArrayVar(variables, "chat-option", *variables, "variable of the chat template, as NAME=JSON, such as enable_thinking=false; may be repeated")
	f.StringVar(date, "chat-date", *date, "date given to the chat template, as 2025-01-31 or 2025-01-31T15:04:05; empty is now")
}
