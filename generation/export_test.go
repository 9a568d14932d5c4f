package generation

var PromptError = promptError
