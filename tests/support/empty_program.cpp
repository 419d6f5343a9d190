// This program does nothing: its target, test_headers, exists only for the precompiled headers.
int main() {}
