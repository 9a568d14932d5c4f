package cli

import "github.com/spf13/pflag"

// BindChat adds the flags of all commands that render a chat template: its variables,
// and the date that it is told.
func BindChat(f *pflag.FlagSet, variables *[]string, date *string) {
	f.StringArrayVar(variables, "chat-option", *variables, "variable of the chat template, as NAME=JSON, such as enable_thinking=false; may be repeated")
	f.StringVar(date, "chat-date", *date, "date given to the chat template, as 2025-01-31 or 2025-01-31T15:04:05; empty is now")
}
