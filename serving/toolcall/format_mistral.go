package toolcall

// Mistral and Ministral. Both forms are read of all; templates differ in what they teach. Before
// [ARGS] there may be [CALL_ID] and an id, and both may be left out.
func init() {
	f := Format{
		Name: "mistral", Doc: `[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]`,
		detect:  has([]string{"[TOOL_CALLS]"}, "[ARGS]"),
		openers: []string{"[TOOL_CALLS]"}, inner: []string{callID, argsMark}, named: true,
		forced: layout{prefix: "[TOOL_CALLS] [", between: ", ", suffix: "]", arguments: "arguments"},
	}
	register(f)
	f.Name, f.Doc = "mistral-args", `[TOOL_CALLS]NAME[ARGS]{…}, several`
	f.detect = has([]string{"[TOOL_CALLS]", "[ARGS]"})
	f.forced = layout{open: "[TOOL_CALLS]"}
	register(f)
}
