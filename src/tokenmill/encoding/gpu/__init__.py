"""What an engine on a GPU needs: where pretokens start, as rules and tables that are checked against `tokenizers`."""
